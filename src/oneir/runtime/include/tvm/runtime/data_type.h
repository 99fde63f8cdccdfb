// The header under which older sources look for tensors and exported functions.
#pragma once

#include <tvm/ffi/function.h>
