package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yare-project/yare/internal/jointoken"
	"github.com/yare-project/yare/server"
)

var errNoServer = errors.New("--server is required: the URL of the API server, https://host:6443; the first time also --token, as `yare token create` prints it there")

// join is what `yare node` is told beside the node itself.
type join struct {
	server, token, tokenFile string
}

func nodeCommand() *cobra.Command {
	f := &flags{}
	var j join
	var background, reporting bool
	command := &cobra.Command{
		Use:     "node",
		Aliases: []string{"agent"},
		Short:   "Join a cluster: run a node of another server",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			token, err := j.parse()
			if err != nil {
				return err
			}
			config, err := f.resolve()
			if err != nil {
				return err
			}
			if background {
				return f.startInBackground(command.OutOrStdout())
			}
			out := command.OutOrStdout()
			var report io.WriteCloser
			if reporting {
				report = os.NewFile(reportFD, "report")
				out = report
			}
			return runNode(command.Context(), config, j.server, token, out, report)
		},
	}
	set := command.Flags()
	f.addNode(set)
	set.StringVarP(&j.server, "server", "s", "", "URL of the API server, https://host:6443")
	set.StringVar(&j.token, "token", "", "join token from `yare token create`; needed the first time only")
	set.StringVar(&j.tokenFile, "token-file", "", "file that holds the join token: a command line is seen by others on the machine")
	set.BoolVarP(&background, "detach", "d", false, "start in the background and return when the node is ready")
	set.BoolVar(&reporting, "report-start", false, "report the start on descriptor 3 (used by --detach)")
	_ = set.MarkHidden("report-start")
	return command
}

// parse checks what must be there; a token may be missing once the machine has joined.
func (j *join) parse() (jointoken.Token, error) {
	if j.server == "" {
		return jointoken.Token{}, errNoServer
	}
	text := j.token
	if j.tokenFile != "" {
		if text != "" {
			return jointoken.Token{}, errors.New("--token and --token-file are both given: give one")
		}
		data, err := os.ReadFile(j.tokenFile)
		if err != nil {
			return jointoken.Token{}, fmt.Errorf("--token-file: %w", err)
		}
		text = strings.TrimSpace(string(data))
	}
	if text == "" {
		return jointoken.Token{}, nil
	}
	return jointoken.Parse(text)
}

// runNode joins, says so, and stays until ctx ends or a part fails.
func runNode(ctx context.Context, config *server.Config, url string, token jointoken.Token, out io.Writer, report io.Closer) error {
	config.Steps = printStep(out)
	node, err := server.Join(ctx, config, url, token)
	if err != nil {
		if report != nil {
			fmt.Fprintln(out, "failed: "+err.Error())
		}
		return err
	}
	fmt.Fprintf(out, "Node %s of %s is ready\n", config.NodeName, url)
	if report != nil {
		fmt.Fprintln(out, readyLine)
		report.Close()
	}
	return node.Wait(ctx)
}
