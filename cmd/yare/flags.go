package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/yare-project/yare/server"
)

// flags are those of up, server and node. Where k3s has the same thing, they have k3s's names.
type flags struct {
	config          server.Config
	store           string
	bind, advertise string
	nodeIP          string
	cluster         string
	service         string
	dns             string
	nodePorts       string
	labels          []string
	logLevel        string
	kubeconfig      string
	context         string
	load            load
}

func (f *flags) add(set *pflag.FlagSet) {
	c := &f.config
	f.addNode(set)
	f.addKubernetes(set)
	f.addLoad(set)
	set.StringVar(&f.store, "store", "disk", "where state lives: disk or memory")
	set.StringVar(&f.bind, "bind-address", "0.0.0.0", "address that the API server listens on")
	set.IntVar(&c.HTTPSPort, "https-listen-port", 6443, "port of the API server")
	set.StringVar(&f.advertise, "advertise-address", "", "address by which pods and nodes reach the API server (default: the node's)")
	set.StringSliceVar(&c.TLSNames, "tls-san", nil, "further names and addresses for the API server's certificate")
	set.StringVar(&c.Token, "token", "", "bearer token that acts as cluster administrator")
	set.StringVar(&f.cluster, "cluster-cidr", "10.42.0.0/16", "addresses for pods")
	set.StringVar(&f.service, "service-cidr", "10.43.0.0/16", "addresses for Services")
	set.StringVar(&f.dns, "cluster-dns", "", "address of the cluster's DNS (default: the tenth of the Services')")
	set.StringVar(&c.ClusterDomain, "cluster-domain", "cluster.local", "DNS domain of the cluster")
	set.StringVar(&f.nodePorts, "service-node-port-range", "30000-32767", "ports for Services of type NodePort")
	set.StringVar(&c.SchedulerConfig, "scheduler-config", "", "a KubeSchedulerConfiguration file")
	set.StringVar(&f.kubeconfig, "write-kubeconfig", "", "write a kubeconfig to this file instead of adding a context to the user's own")
	set.StringVar(&f.context, "context", "yare", "name of the context in the kubeconfig")
}

// addNode adds what a node is told, with or without a control plane beside it.
func (f *flags) addNode(set *pflag.FlagSet) {
	c := &f.config
	f.addFolder(set)
	set.StringVar(&c.NodeName, "node-name", "", "name of this node (default: the host's)")
	set.StringVar(&f.nodeIP, "node-ip", "", "address of this node (default: that of the default route)")
	set.StringSliceVar(&f.labels, "node-label", nil, "labels for this node, key=value")
	set.IntVar(&c.AgentPort, "kubelet-port", 10250, "port of the node agent")
	set.StringVar(&c.RuntimeDir, "runtime-dir", "", "folder with containerd, runc and the CNI plugins (default: runtime, beside the program)")
	set.StringVar(&c.RuntimeEndpoint, "container-runtime-endpoint", "", "use the container runtime at this socket instead of starting one")
	set.StringVar(&f.logLevel, "log-level", "warn", "debug, info, warn or error")
}

func (f *flags) addFolder(set *pflag.FlagSet) {
	set.StringVar(&f.config.DataDir, "data-dir", "/var/lib/yare", "folder that holds all state")
}

// resolve turns the texts into the config.
func (f *flags) resolve() (*server.Config, error) {
	c := &f.config
	c.Backend = server.Backend(f.store)
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", f.logLevel)
	}
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(slog.New(libraryLog{c.Log.Handler()}))
	for _, a := range []struct {
		flag, text string
		into       *netip.Addr
	}{
		{"bind-address", f.bind, &c.BindAddress}, {"advertise-address", f.advertise, &c.AdvertiseAddress},
		{"node-ip", f.nodeIP, &c.NodeIP}, {"cluster-dns", f.dns, &c.ClusterDNS},
	} {
		if err := parse(a.flag, a.text, a.into, netip.ParseAddr, "an IP address"); err != nil {
			return nil, err
		}
	}
	if err := parse("cluster-cidr", f.cluster, &c.ClusterCIDR, netip.ParsePrefix, "a range such as 10.42.0.0/16"); err != nil {
		return nil, err
	}
	if err := parse("service-cidr", f.service, &c.ServiceCIDR, netip.ParsePrefix, "a range such as 10.43.0.0/16"); err != nil {
		return nil, err
	}
	if err := f.resolvePorts(); err != nil {
		return nil, err
	}
	if err := f.resolveLoad(); err != nil {
		return nil, err
	}
	c.NodeLabels = map[string]string{}
	for _, l := range f.labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, fmt.Errorf("--node-label %q: write it as key=value", l)
		}
		c.NodeLabels[key] = value
	}
	return c, c.Complete()
}

func (f *flags) resolvePorts() error {
	if f.nodePorts == "" {
		return nil // the command has no such flag
	}
	first, last, ok := strings.Cut(f.nodePorts, "-")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(last)
	if !ok || errA != nil || errB != nil {
		return fmt.Errorf("--service-node-port-range %q: write it as 30000-32767", f.nodePorts)
	}
	f.config.NodePorts = [2]int{a, b}
	return nil
}

func parse[T any](flag, text string, into *T, parser func(string) (T, error), want string) error {
	if text == "" {
		return nil
	}
	value, err := parser(text)
	if err != nil {
		return fmt.Errorf("--%s %q is not %s", flag, text, want)
	}
	*into = value
	return nil
}

func (f *flags) path(name string) string { return filepath.Join(f.config.DataDir, name) }
