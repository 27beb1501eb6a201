import click
import torch


@click.command()
@click.option("--epochs", default=350)
@click.option("--checkpoint-file", default="state.ckpt", type=click.Path())
@click.option("--resume/--fresh", default=False, help="go on from the checkpoint file")
def main(epochs, checkpoint_file, resume):
    net = torch.nn.Bilinear(3, 3, 1)
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.1)
    begin = 0
    if resume:
        state = torch.load(checkpoint_file)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["next"]
    for epoch in range(begin, epochs):
        for _ in range(5):
            left, right = torch.randn(20, 3), torch.randn(20, 3)
            optimizer.zero_grad()
            (net(left, right)[:, 0] - (left * right).sum(1)).square().mean().backward()
            optimizer.step()
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "next": epoch + 1}, checkpoint_file)
        click.echo(f"epoch {epoch} is done")


if __name__ == "__main__":
    main()
