package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/yare-project/yare/bench"
)

// benchFlags are what `yare bench` is told.
type benchFlags struct {
	kubeconfig, context, output string
	config                      bench.Config
}

func benchCommand() *cobra.Command {
	f := &benchFlags{}
	c := &f.config
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure a Kubernetes API server, this one or another",
		Long: "Runs loads against the server of a kubeconfig and prints operations a second, times, and, when the server runs on this machine, what its processes\n" +
			"spent on each operation. What a run makes it removes at its end. Loads: " + strings.Join(bench.Loads(), ", ") + ".",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command, command.OutOrStdout())
		},
	}
	set := command.Flags()
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the server (default: KUBECONFIG, else ~/.kube/config)")
	set.StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
	set.StringVarP(&f.output, "output", "o", "plain", "plain, or json: one document at the end")
	set.StringSliceVar(&c.Run, "run", nil, "loads to run, in order (default: all but podstart and idle)")
	set.IntSliceVar(&c.PIDs, "pids", nil, "processes of the server, such as kube-apiserver and etcd (default: who listens at the server's port on this machine)")
	set.IntVarP(&c.Objects, "objects", "n", 5000, "objects of each kind")
	set.IntVarP(&c.Clients, "clients", "c", 32, "clients at once")
	set.IntVar(&c.Watchers, "watchers", 200, "watchers of the load watch")
	set.IntVar(&c.Events, "events", 500, "events that each watcher sees")
	set.IntVar(&c.Nodes, "nodes", 1000, "pretended nodes of the load schedule")
	set.IntVar(&c.Pods, "pods", 0, "pods of the loads schedule (default 5000) and podstart (default 20)")
	set.StringVar(&c.Image, "image", "", "image that podstart runs; the node has it")
	set.StringSliceVar(&c.Command, "command", nil, "command that podstart runs, comma-separated (default: the image's)")
	set.IntVar(&c.Samples, "samples", 300, "requests behind each column of the load stages")
	set.DurationVar(&c.Idle, "idle-time", 20*time.Second, "how long the load idle looks on")
	return command
}

// benchReport is the document of -o json.
type benchReport struct {
	Server  string         `json:"server"`
	Version string         `json:"version"`
	PIDs    []int          `json:"pids,omitempty"`
	Objects int            `json:"objects"`
	Clients int            `json:"clients"`
	Results []bench.Result `json:"results"`
}

func (f *benchFlags) run(command *cobra.Command, out io.Writer) error {
	plain := f.output == "plain"
	if !plain && f.output != "json" {
		return fmt.Errorf("--output %q: use plain or json", f.output)
	}
	c := f.config
	var err error
	if c.Server, err = f.server(); err != nil {
		return err
	}
	if len(c.PIDs) == 0 {
		pid, err := bench.Listener("/proc", c.Server.Host)
		if err != nil {
			return err
		}
		if pid > 0 {
			c.PIDs = []int{pid}
		} else {
			fmt.Fprintln(command.ErrOrStderr(), "the server's process was not found here: its processor time and memory are not told; name processes with --pids")
		}
	}
	report := benchReport{Server: c.Server.Host, PIDs: c.PIDs, Objects: c.Objects, Clients: c.Clients}
	var printing error
	c.Report = func(r bench.Result) {
		report.Results = append(report.Results, r)
		if plain && printing == nil {
			printing = bench.Print(out, r)
		}
	}
	if report.Version, err = bench.Version(command.Context(), c.Server); err != nil {
		return err
	}
	if plain {
		fmt.Fprintf(out, "%s, Kubernetes %s, %d objects, %d clients\n", report.Server, report.Version, c.Objects, c.Clients)
	}
	if err := bench.Run(command.Context(), c); err != nil {
		return err
	}
	if plain {
		if err := bench.PrintStages(out, report.Results); err != nil {
			return err
		}
		return printing
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

func (f *benchFlags) server() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("which server to measure: %w", err)
	}
	return config, nil
}
