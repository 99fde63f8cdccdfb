# Graph code
print(fx_module.code)
'''
def forward(self, x):
weight = self.weight
matmul = torch.matmul(x, weight); x = weight = None
relu = torch.relu(matmul); matmul = None
return relu
'''
