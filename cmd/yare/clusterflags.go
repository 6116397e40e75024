package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterFlags say which cluster a command asks, by kubectl's rules.
type clusterFlags struct{ kubeconfig, context, namespace string }

func (f *clusterFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: KUBECONFIG, else ~/.kube/config)")
	set.StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
	set.StringVarP(&f.namespace, "namespace", "n", "", "namespace (default: the context's)")
}

// client is how to reach the cluster, and the namespace that is meant.
func (f *clusterFlags) client() (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	overrides.Context.Namespace = f.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("which cluster to ask: %w", err)
	}
	config.QPS = -1 // the server shares itself out
	namespace, _, err := loader.Namespace()
	return config, namespace, err
}
