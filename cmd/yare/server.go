package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yare-project/yare/internal/version"
)

func serverCommand() *cobra.Command {
	f := &flags{}
	command := &cobra.Command{
		Use:   "server",
		Short: "Run the control plane (with --disable-agent: without a node)",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := f.resolve()
			if err == nil {
				err = f.checkKubeconfig()
			}
			if err != nil {
				return err
			}
			return f.runCluster(command.Context(), config, command.OutOrStdout(), nil)
		},
	}
	f.add(command.Flags())
	command.Flags().BoolVar(&f.config.WithoutNode, "disable-agent", false, "run no node in this process")
	return command
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which Yare this is and which Kubernetes API it speaks",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(command.OutOrStdout(), "yare %s, Kubernetes API %s, %s %s\n",
				version.Build(), version.Kubernetes, version.Info().GoVersion, version.Info().Platform)
			return err
		},
	}
}
