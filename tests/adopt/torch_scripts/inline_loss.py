import torch as th

th.manual_seed(0)
losses = []
net = th.nn.Sequential(th.nn.Linear(5, 20), th.nn.SiLU(), th.nn.Linear(20, 3))
opt = th.optim.NAdam(net.parameters(), lr=2e-2)
x, y = th.randn(30, 5), th.randint(0, 3, (30,))
for _ in range(15):
	opt.zero_grad()
	th.nn.functional.cross_entropy(net(x), y).backward()
	opt.step()
	with th.no_grad():
		losses.append(th.nn.functional.cross_entropy(net(x), y).item())
