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
)

func main() {
	os.Exit(run(os.Args))
}

// run picks kubectl when the program was called by that name, so that a link named kubectl works.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if filepath.Base(args[0]) == "kubectl" {
		return kubectl(args)
	}
	if len(args) > 1 && args[1] == "kubectl" {
		return kubectl(append([]string{"kubectl"}, args[2:]...))
	}
	root := rootCommand()
	root.SetArgs(args[1:])
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return 0
	default:
		fmt.Fprintln(os.Stderr, "yare: "+strings.TrimSpace(err.Error()))
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
		imageCommand(), tokenCommand(), versionCommand(), kubectlCommand(),
	)
	return root
}
