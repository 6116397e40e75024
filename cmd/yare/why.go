package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/yare-project/yare/why"
)

func whyCommand() *cobra.Command {
	f := &clusterFlags{}
	var output string
	command := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Say what an object went through and which loop it waits for",
		Long: "Reads an object, its events and what stands around it, and says what happened when and, if it is not as wanted, which loop must act and what that\n" +
			"loop waits for. For a pod without a node: the reasons, and the smallest change that would let it go. It only reads; any Kubernetes cluster will do.\n" +
			"Kinds: " + strings.Join(why.Kinds(), ", ") + ".",
		Example:           "  yare why pod/web-0\n  yare why deploy/web -n shop -o json",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeKinds,
		RunE: func(command *cobra.Command, args []string) error {
			return runWhy(command, f, output, args)
		},
	}
	f.add(command.Flags())
	command.Flags().StringVarP(&output, "output", "o", "plain", "plain, or json")
	return command
}

func completeKinds(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, k := range why.Kinds() {
		out = append(out, k+"/")
	}
	return out, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

func runWhy(command *cobra.Command, f *clusterFlags, output string, args []string) error {
	if output != "plain" && output != "json" {
		return fmt.Errorf("--output %q: use plain or json", output)
	}
	kind, name, err := why.ParseObject(args...)
	if err != nil {
		return err
	}
	config, namespace, err := f.client()
	if err != nil {
		return err
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	c := why.Config{API: api, Now: time.Now(), Ask: func(ctx context.Context, path string) ([]byte, error) {
		return api.CoreV1().RESTClient().Get().AbsPath(path).Do(ctx).Raw()
	}}
	facts, err := why.Gather(command.Context(), c, kind, namespace, name)
	if err != nil {
		return err
	}
	report := why.Explain(facts)
	if output == "plain" {
		return why.Print(command.OutOrStdout(), report, c.Now, time.Local)
	}
	encoder := json.NewEncoder(command.OutOrStdout())
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}
