print(fx_module.graph)
'''
graph():
%x : [num_users=1] = placeholder[target=x]
%weight : [num_users=1] = get_attr[target=weight]
%matmul : [num_users=1] = call_function[target=torch.matmul](args = (%x, %weight), kwargs = {})
%relu : [num_users=1] = call_function[target=torch.relu](args = (%matmul,), kwargs = {})
return relu
'''
