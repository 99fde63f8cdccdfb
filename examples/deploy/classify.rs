//! Classifies the images of Fashion-MNIST with the exported MLP, in one batch.
//!
//!     rustc -O -L build -l static=mlp examples/deploy/classify.rs -o build/classify
//!     build/classify build

use std::ffi::{c_char, c_int, c_void, CStr};
use std::{env, fs, ptr};

#[repr(C)]
struct Model {
    weights: *const c_void,
    bytes: i64,
}

#[repr(C)]
struct Inputs {
    x: *const f32,
    x_shape: [i64; 2],
}

#[repr(C)]
struct Outputs {
    scores: *mut f32,
    scores_shape: [i64; 2],
}

extern "C" {
    fn mlp_init(model: *mut Model, error: *mut *const c_char) -> c_int;
    fn mlp_free(model: *mut Model);
    fn mlp_plan(inputs: *const Inputs, outputs: *mut Outputs, bytes: *mut i64, error: *mut *const c_char) -> c_int;
    fn mlp_run(
        model: *const Model,
        inputs: *const Inputs,
        outputs: *const Outputs,
        workspace: *mut c_void,
        bytes: i64,
        error: *mut *const c_char,
    ) -> c_int;
}

/// What a function returned: nothing, or why it failed.
fn checked(status: c_int, error: *const c_char) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    // Texts of errors are constants of the program.
    Err(unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned())
}

/// The scores of images of 784 pixels, ten for each.
fn scores(images: &[f32]) -> Result<Vec<f32>, String> {
    let mut model = Model { weights: ptr::null(), bytes: 0 };
    let mut error = ptr::null();
    let inputs = Inputs { x: images.as_ptr(), x_shape: [(images.len() / 784) as i64, 784] };
    let mut outputs = Outputs { scores: ptr::null_mut(), scores_shape: [0; 2] };
    let mut bytes = 0;
    unsafe {
        checked(mlp_init(&mut model, &mut error), error)?;
        checked(mlp_plan(&inputs, &mut outputs, &mut bytes, &mut error), error)?;
        let mut scores = vec![0.0; (outputs.scores_shape[0] * outputs.scores_shape[1]) as usize];
        let mut workspace = vec![0u8; bytes as usize];
        outputs.scores = scores.as_mut_ptr();
        let status = mlp_run(&model, &inputs, &outputs, workspace.as_mut_ptr().cast(), bytes, &mut error);
        mlp_free(&mut model);
        checked(status, error).map(|()| scores)
    }
}

fn main() -> Result<(), String> {
    let folder = env::args().nth(1).unwrap_or_else(|| ".".into());
    let read = |name: &str| fs::read(format!("{folder}/{name}")).map_err(|why| format!("{folder}/{name}: {why}"));
    let images: Vec<f32> = read("images.bin")?.iter().map(|&pixel| f32::from(pixel) / 255.0).collect();
    let labels = read("labels.bin")?;
    let scores = scores(&images)?;
    let best = |row: &[f32]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0);
    let right = scores.chunks(10).zip(&labels).filter(|(row, &label)| best(row) == usize::from(label)).count();
    println!("{right} of {} images are classified right", labels.len());
    Ok(())
}
