package server

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/dns"
	"github.com/yare-project/yare/internal/pki"
	"github.com/yare-project/yare/internal/version"
	"github.com/yare-project/yare/loop"
	"github.com/yare-project/yare/node"
	"github.com/yare-project/yare/node/cgroup"
	"github.com/yare-project/yare/node/cri"
	"github.com/yare-project/yare/node/kubeletapi"
	"github.com/yare-project/yare/node/route"
	"github.com/yare-project/yare/node/runtime"
	"github.com/yare-project/yare/node/volume"
	"github.com/yare-project/yare/proxy"
)

// instance names what belongs to a data folder on this machine: interfaces, tables, control groups.
func instance(dataDir string) string {
	return hex.EncodeToString(sum(dataDir)[:4])
}

func sum(dataDir string) []byte {
	s := sha256.Sum256([]byte(dataDir))
	return s[:]
}

func linkName(dataDir string) string   { return "yare-s-" + instance(dataDir) } // 15 bytes, the kernel's limit
func tableName(dataDir string) string  { return "yare-" + instance(dataDir) }
func routeMark(dataDir string) uint32  { return binary.BigEndian.Uint32(sum(dataDir)) | 1 }
func cgroupName(dataDir string) string { return "kubepods-" + instance(dataDir) }

// runtimeConfig is the container runtime's; up and down must agree on it.
func (c *Config) runtimeConfig() runtime.Config {
	return runtime.Config{
		Endpoint: c.RuntimeEndpoint, Dir: filepath.Join(c.DataDir, "runtime"), BinDir: c.RuntimeDir,
		CgroupRoots: []string{cgroupName(c.DataDir)}, Clock: c.Clock, Log: c.Log,
	}
}

// home is where a node belongs: how it reaches its API server, and how it proves itself.
type home struct {
	transport client.Transport // as the node
	shared    *client.Caches   // what proxy and DNS read
	clientCA  *x509.CertPool   // vouches for who calls the node's API
	// serving gives the certificate of the node's API; it is asked once the Node object has its addresses.
	serving func(context.Context) (*pki.Leaf, error)
}

// nodeParts is what a node runs.
type nodeParts struct {
	home
	config  *Config
	stack   *stack
	metrics *prometheus.Registry
	caches  *client.Caches // the node's own view

	containers *runtime.Runtime
	service    internalapi.RuntimeService
	images     internalapi.ImageManagerService
	agent      *node.Agent
}

// startLocalNode runs the node in the same process as its control plane.
func startLocalNode(ctx context.Context, cl *Cluster) (*nodeParts, error) {
	c, p := cl.config, cl.plane
	return startNode(ctx, c, cl.stack, cl.metrics, home{
		transport: p.gate.Local(&user.DefaultInfo{Name: "system:node:" + c.NodeName, Groups: []string{user.NodesGroup, user.AllAuthenticated}}),
		shared:    p.loops.caches, clientCA: p.pki.Cluster.Pool(),
		serving: func(context.Context) (*pki.Leaf, error) { return p.pki.Leaf(c.nodeServing()) },
	})
}

// nodeServing is what the certificate of the node's API says.
func (c *Config) nodeServing() pki.LeafSpec {
	return pki.NodeServing(c.NodeName, nil, []net.IP{c.NodeIP.AsSlice()})
}

func startNode(ctx context.Context, c *Config, s *stack, metrics *prometheus.Registry, at home) (*nodeParts, error) {
	n := &nodeParts{home: at, config: c, stack: s, metrics: metrics}
	n.caches = client.NewCaches(client.CachesConfig{Transport: n.transport, Clock: c.Clock, Log: c.Log})
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"start the container runtime", n.startRuntime},
		{"route Services and DNS", n.startNetwork},
		{"start the node agent", n.startAgent},
		{"import images", n.importImages},
		{"node is ready", n.waitReady},
	} {
		if err := s.step(step.name, func() error { return step.do(ctx) }); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *nodeParts) startRuntime(ctx context.Context) error {
	if n.config.CRI != nil {
		n.service, n.images = n.config.CRI()
		return nil
	}
	if err := n.config.rememberRuntime(); err != nil {
		return err
	}
	r, err := runtime.Start(ctx, n.config.runtimeConfig())
	if err != nil {
		return err
	}
	n.containers = r
	// Containers outlive this process: the next start finds them. `yare down` removes them.
	n.stack.onStop(r.Stop)
	conn, err := cri.Connect(ctx, r.Endpoint())
	if err != nil {
		return err
	}
	n.stack.onStop(conn.Close)
	n.service, n.images = conn, conn
	return nil
}

// startNetwork makes Services and the cluster's names work on this node. A cluster without containers has no use for either.
func (n *nodeParts) startNetwork(ctx context.Context) error {
	c := n.config
	if c.CRI != nil {
		return nil
	}
	if err := proxy.Link(linkName(c.DataDir), []netip.Prefix{c.ServiceCIDR}, c.ClusterDNS); err != nil {
		return err
	}
	rules, err := proxy.New(proxy.Config{
		Table: tableName(c.DataDir), NodeName: c.NodeName, ClusterCIDR: []netip.Prefix{c.ClusterCIDR}, ServiceCIDR: []netip.Prefix{c.ServiceCIDR},
		Caches: n.shared, Clock: c.Clock, Log: c.Log, Metrics: n.metrics,
	})
	if err != nil {
		return err
	}
	names, err := dns.New(dns.Config{
		Domain: c.ClusterDomain, Listen: []netip.AddrPort{netip.AddrPortFrom(c.ClusterDNS, 53)},
		Caches: n.shared, Clock: c.Clock, Log: c.Log, Metrics: n.metrics,
	})
	if err != nil {
		return err
	}
	n.stack.run("service proxy", rules.Run)
	n.stack.run("DNS", names.Run)
	if err := n.startRoutes(ctx); err != nil {
		return err
	}
	for _, ready := range []<-chan struct{}{rules.Ready(), names.Ready()} {
		if err := n.wait(ctx, ready); err != nil {
			return err
		}
	}
	return nil
}

// startRoutes lets this node's pods reach those of other nodes. A container runtime that somebody else set up brings its own network.
func (n *nodeParts) startRoutes(ctx context.Context) error {
	c := n.config
	if c.RuntimeEndpoint != "" {
		return nil
	}
	kernel, err := route.Open(routeMark(c.DataDir))
	if err != nil {
		return err
	}
	routes := route.New(route.Config{NodeName: c.NodeName, ClusterCIDR: []netip.Prefix{c.ClusterCIDR}, Kernel: kernel, Clock: c.Clock, Log: c.Log})
	loops, err := loop.New(loop.Config{
		Transport: func(string) client.Transport { return n.transport },
		Caches:    n.shared, Clock: c.Clock, Log: c.Log, Metrics: n.metrics, Instance: c.NodeName,
	})
	if err != nil {
		return err
	}
	if err := loops.Add(routes.Descriptor()); err != nil {
		return err
	}
	n.stack.run("lost routes", routes.Run)
	n.stack.run("routes", loops.Run)
	return n.wait(ctx, routes.Ready())
}

// wait returns when ready is closed, a part of the process fails, or ctx ends.
func (n *nodeParts) wait(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case err := <-n.stack.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// standardPlugins is where drivers register that were written for the kubelet; it is watched, but not made.
const standardPlugins = "/var/lib/kubelet/plugins_registry"

// standardPodResources is where programs written for the kubelet ask for the devices of pods; it is served if the folder is there and free.
const standardPodResources = "/var/lib/kubelet/pod-resources"

func (n *nodeParts) startAgent(ctx context.Context) error {
	c := n.config
	events := loop.NewRecorder(loop.RecorderConfig{Transport: n.transport, Component: "kubelet", Instance: c.NodeName, Clock: c.Clock, Log: c.Log})
	config := node.Config{
		Name: c.NodeName, IPs: []string{c.NodeIP.String()}, Root: filepath.Join(c.DataDir, "agent"),
		Transport: n.transport, Caches: n.caches, Runtime: n.service, Images: n.images,
		ClusterDNS: []string{c.ClusterDNS.String()}, ClusterDomain: c.ClusterDomain, KubeletPort: int32(c.AgentPort),
		PluginDirs:       []string{filepath.Join(c.DataDir, "agent", "plugins_registry"), standardPlugins},
		PodResourcesDirs: []string{filepath.Join(c.DataDir, "agent", "pod-resources"), standardPodResources},
		Labels:           c.NodeLabels, KubeletVersion: version.Info().GitVersion,
		Event: events.EventAbout, Clock: c.Clock, Log: c.Log, Metrics: n.metrics,
	}
	if c.CRI == nil {
		groups, err := cgroup.New(cgroup.Config{Parent: "/" + cgroupName(c.DataDir)})
		if err != nil {
			return err
		}
		config.Cgroups, config.Mounter = groups, volume.Kernel{}
	}
	var err error
	if n.agent, err = node.New(config); err != nil {
		return err
	}
	n.followPodCIDRs()
	s := n.stack
	s.run("node events", func(ctx context.Context) error { events.Run(ctx); return nil })
	s.run("node caches", func(ctx context.Context) error { n.caches.Run(ctx); return nil })
	s.run("node agent", n.agent.Run)
	return n.serveAPI(ctx)
}

// serveAPI answers the API server's requests for logs, exec and the like.
func (n *nodeParts) serveAPI(ctx context.Context) error {
	c := n.config
	authenticate, authorize, err := kubeletapi.Delegated(kubeletapi.DelegatedConfig{
		ClientCAs: func() *x509.CertPool { return n.clientCA },
		ReviewToken: func(ctx context.Context, r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
			return review(ctx, n.transport, authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"), r)
		},
		ReviewAccess: func(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
			return review(ctx, n.transport, authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"), r)
		},
		Clock: c.Clock,
	})
	if err != nil {
		return err
	}
	api, err := kubeletapi.New(kubeletapi.Config{
		NodeName: c.NodeName, View: n.agent, Runtime: n.service, Images: n.images, Authenticator: authenticate, Authorizer: authorize,
		Metrics: promhttp.HandlerFor(n.metrics, promhttp.HandlerOpts{}), DataDir: c.DataDir, LogDir: filepath.Join(c.DataDir, "agent", "logs"),
		Configz: c.configz(), Clock: c.Clock, Log: c.Log,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", c.AgentPort))
	if err != nil {
		return fmt.Errorf("cannot listen on port %d: %w; choose another with --kubelet-port", c.AgentPort, plain(err))
	}
	leaf, err := n.serving(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	n.stack.run("node API", func(ctx context.Context) error { return api.Serve(ctx, listener, pki.ServerTLS(leaf)) })
	return nil
}

// followPodCIDRs hands the addresses that the control plane gives to this node on to the runtime's network.
func (n *nodeParts) followPodCIDRs() {
	self := client.CacheOf[*corev1.Node](n.caches, client.CacheOptions{FieldSelector: "metadata.name=" + n.config.NodeName})
	last := ""
	self.OnChange(func(_, node *corev1.Node) {
		if node == nil || n.containers == nil || len(node.Spec.PodCIDRs) == 0 || fmt.Sprint(node.Spec.PodCIDRs) == last {
			return
		}
		var cidrs []netip.Prefix
		for _, text := range node.Spec.PodCIDRs {
			cidr, err := netip.ParsePrefix(text)
			if err != nil {
				n.config.Log.Error("this node's spec.podCIDRs are unusable", "error", err)
				return
			}
			cidrs = append(cidrs, cidr)
		}
		if err := n.containers.SetPodCIDRs(cidrs); err != nil {
			n.config.Log.Error("pods cannot get addresses", "error", err)
			return
		}
		last = fmt.Sprint(node.Spec.PodCIDRs)
	})
}

// waitReady returns when the API shows this node as Ready.
func (n *nodeParts) waitReady(ctx context.Context) error {
	self := client.CacheOf[*corev1.Node](n.shared, client.CacheOptions{})
	ready := make(chan struct{})
	closed := false
	self.OnChange(func(_, node *corev1.Node) {
		if !closed && node != nil && node.Name == n.config.NodeName && isReady(node) {
			closed = true
			close(ready)
		}
	})
	return n.wait(ctx, ready)
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// configz is what /configz tells: the node's settings under the names of the kubelet's configuration.
func (c *Config) configz() map[string]any {
	return map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "port": c.AgentPort, "clusterDomain": c.ClusterDomain,
		"clusterDNS": []string{c.ClusterDNS.String()}, "maxPods": 110, "cgroupDriver": "cgroupfs", "serializeImagePulls": false,
	}
}
