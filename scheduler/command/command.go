// Package command is the scheduler as a program of its own, and the way to build one with more plugins:
//
//	func main() { command.Main(command.WithPlugin("ByName", byname.New)) }
//
// is a whole scheduler binary; a KubeSchedulerConfiguration enables the plugin in a profile.
//
// It reaches the API over HTTPS, as its kubeconfig or service account says, so that it serves beside the scheduler in `yare server` (for pods of other
// schedulerNames), or any cluster of Kubernetes 1.36. What it may do there is what Kubernetes grants kube-scheduler and, for SchedulingPolicies, the role
// system:yare:scheduler. Flags have kube-scheduler's names. One of several instances leads; one that loses the lead ends.
package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/clientcmd"

	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/client"
	clienthttp "github.com/yare-project/yare/client/http"
	"github.com/yare-project/yare/loop"
	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/scheduler/framework"
)

// Option extends the program.
type Option func(*program)

// WithPlugin adds a plugin under a name that no other plugin has. Profiles enable it.
func WithPlugin(name string, f framework.Factory) Option {
	return func(p *program) { p.plugins[name] = f }
}

type program struct {
	plugins map[string]framework.Factory

	kubeconfig, config, level string
	elect                     bool
	leaseName, leaseNamespace string
	lease                     scheduler.LeaderElection
	given                     func(flag string) bool // on the command line
}

// Main runs the program until a signal ends it, and exits.
func Main(options ...Option) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	c := New(options...)
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, c.Name()+": "+strings.TrimSpace(err.Error()))
		os.Exit(1)
	}
}

// New makes the command, for a program that has others.
func New(options ...Option) *cobra.Command {
	p := &program{plugins: map[string]framework.Factory{}}
	for _, o := range options {
		o(p)
	}
	return newCommand(p)
}

func newCommand(p *program) *cobra.Command {
	c := &cobra.Command{
		Use: "scheduler", Short: "Run the scheduler alone, against any API server", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return p.run(c.Context()) },
	}
	set := c.Flags()
	p.given = set.Changed
	set.StringVar(&p.kubeconfig, "kubeconfig", "", "how to reach the API server (default: $KUBECONFIG, or the pod's service account)")
	set.StringVar(&p.config, "config", "", "a KubeSchedulerConfiguration file (default: one profile, default-scheduler)")
	set.BoolVar(&p.elect, "leader-elect", true, "of several instances, let one schedule")
	set.StringVar(&p.leaseName, "leader-elect-resource-name", "kube-scheduler", "name of the Lease that the instances compete for")
	set.StringVar(&p.leaseNamespace, "leader-elect-resource-namespace", "kube-system", "namespace of the Lease")
	set.StringVar(&p.level, "log-level", "info", "debug, info, warn or error")
	return c
}

func (p *program) run(ctx context.Context) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(p.level)); err != nil {
		return fmt.Errorf("--log-level %q: use debug, info, warn or error", p.level)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	profiles, err := scheduler.LoadConfig(p.config)
	if err != nil {
		return err
	}
	p.follow(profiles)
	api, err := p.connect(profiles.ClientConnection)
	if err != nil {
		return err
	}
	identity, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("cannot read the host's name: %w", err)
	}
	identity += "_" + string(uuid.NewUUID())
	serve := func(ctx context.Context) error { return p.schedule(ctx, api, profiles, identity, log) }
	if !p.elect {
		return serve(ctx)
	}
	elector, err := loop.NewLeaseElector(loop.LeaseConfig{Transport: api, Namespace: p.leaseNamespace, Name: p.leaseName, Identity: identity, Log: log,
		Duration: p.lease.LeaseDuration.Duration, RenewDeadline: p.lease.RenewDeadline.Duration, RetryPeriod: p.lease.RetryPeriod.Duration})
	if err != nil {
		return err
	}
	leading, end := context.WithCancel(ctx)
	defer end()
	var failed error
	led := elector.Lead(leading, func(ctx context.Context) {
		defer end() // who can't schedule does not keep others from it
		failed = serve(ctx)
	})
	if leading.Err() != nil {
		led = nil
	}
	return errors.Join(failed, led)
}

// follow takes what the configuration says and no flag does.
func (p *program) follow(c scheduler.Profiles) {
	if conn := c.ClientConnection; conn != nil && !p.given("kubeconfig") {
		p.kubeconfig = conn.Kubeconfig
	}
	e := c.LeaderElection
	if e == nil {
		return
	}
	p.lease = *e
	if e.LeaderElect != nil && !p.given("leader-elect") {
		p.elect = *e.LeaderElect
	}
	if e.ResourceName != "" && !p.given("leader-elect-resource-name") {
		p.leaseName = e.ResourceName
	}
	if e.ResourceNamespace != "" && !p.given("leader-elect-resource-namespace") {
		p.leaseNamespace = e.ResourceNamespace
	}
}

func (p *program) connect(c *scheduler.ClientConnection) (client.Transport, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("how to reach the API server: %w", err)
	}
	config.UserAgent = "yare-scheduler"
	if c != nil {
		config.QPS, config.Burst = c.QPS, int(c.Burst)
	}
	return clienthttp.New(config)
}

// schedule runs a scheduler until ctx ends.
func (p *program) schedule(ctx context.Context, api client.Transport, profiles scheduler.Profiles, identity string, log *slog.Logger) error {
	_, err := client.Of[*v1alpha1.SchedulingPolicy](api).List(ctx, "", metav1.ListOptions{Limit: 1})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("SchedulingPolicies: %w", err)
	}
	_, ungrouped := client.Of[*schedulingv1alpha2.PodGroup](api).List(ctx, "", metav1.ListOptions{Limit: 1})
	if ungrouped != nil && !apierrors.IsNotFound(ungrouped) {
		return fmt.Errorf("PodGroups: %w", ungrouped)
	}
	names := make([]string, 0, len(profiles.Profiles))
	for _, profile := range profiles.Profiles {
		names = append(names, profile.SchedulerName)
	}
	events := loop.NewRecorder(loop.RecorderConfig{Transport: api, Component: names[0], Instance: identity, Log: log})
	caches := client.NewCaches(client.CachesConfig{Transport: api, Log: log})
	s, err := scheduler.New(scheduler.Config{Transport: api, Caches: caches, Log: log, Events: events.Event, Profiles: profiles, Plugins: p.plugins, WithoutPolicies: err != nil, WithoutGroups: ungrouped != nil})
	if err != nil {
		return err
	}
	log.Info("scheduling", "for", names)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() { caches.Run(ctx) })
	tasks.Go(func() { events.Run(ctx) })
	return s.Run(ctx)
}
