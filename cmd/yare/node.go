package main

import (
	"github.com/spf13/cobra"

	"github.com/yare-project/yare/internal/jointoken"
	"github.com/yare-project/yare/server"
)

func nodeCommand() *cobra.Command {
	f := &flags{}
	var url string
	command := &cobra.Command{
		Use:     "node",
		Aliases: []string{"agent"},
		Short:   "Run a node of another server",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if url == "" || f.config.Token == "" {
				return errNoServer
			}
			token, err := jointoken.Parse(f.config.Token)
			if err != nil {
				return err
			}
			config, err := f.resolve()
			if err != nil {
				return err
			}
			return server.Join(command.Context(), config, url, token)
		},
	}
	f.add(command.Flags())
	command.Flags().StringVarP(&url, "server", "s", "", "URL of the API server, https://host:6443")
	return command
}
