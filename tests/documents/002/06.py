class MyModel(nn.Module):
    def __init__(self, *args, **kwargs) -> None:
        super(MyModel, self).__init__(*args, **kwargs)
        self.weight = nn.Parameter(torch.randn(128, 128))

    def forward(self, x):
        x = torch.matmul(x, self.weight)
        x = torch.relu(x)
        return x
