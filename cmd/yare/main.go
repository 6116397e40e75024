// Command yare is the whole program: control plane, node agent and tools, one subcommand each. It parses flags and prints; everything
// else is in the packages that it calls.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/yare-project/yare/scheduler/command"
)

func main() {
	os.Exit(run(os.Args))
}

// run picks what the program was called by the name of, so that links named kubectl, kube-apiserver and etcd work.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch filepath.Base(args[0]) {
	case "kubectl":
		return kubectl(args)
	case "kube-apiserver":
		return execute(ctx, kubeAPIServerCommand(), args[1:])
	case "etcd":
		return execute(ctx, etcdCommand(), args[1:])
	}
	if len(args) > 1 && args[1] == "kubectl" {
		return kubectl(append([]string{"kubectl"}, args[2:]...))
	}
	return execute(ctx, rootCommand(), args[1:])
}

// execute runs a command and returns its exit code.
func execute(ctx context.Context, command *cobra.Command, args []string) int {
	command.SetArgs(args)
	err := command.ExecuteContext(ctx)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return 0
	default:
		fmt.Fprintln(os.Stderr, command.Name()+": "+strings.TrimSpace(err.Error()))
		return 1
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "yare",
		Short:         "A container orchestrator in one binary that speaks the Kubernetes API",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		upCommand(), downCommand(), serverCommand(), nodeCommand(),
		imageCommand(), tokenCommand(), versionCommand(), kubectlCommand(), envtestCommand(), benchCommand(), whyCommand(), simulateCommand(), command.New(),
	)
	return root
}
