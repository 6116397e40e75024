package command

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/scheduler"
)

// TestFlagsGoBeforeTheConfiguration: what is on the command line counts, else what the configuration says, else the default.
func TestFlagsGoBeforeTheConfiguration(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	type settings struct {
		Kubeconfig, Name, Namespace string
		Elect                       bool
		Lease                       time.Duration
	}
	const whole = head + "clientConnection: {kubeconfig: /from/file}\nleaderElection: {leaderElect: false, resourceName: mine, resourceNamespace: here, leaseDuration: 30s}\n"
	for _, c := range []struct {
		name, body string
		flags      []string
		want       settings
	}{
		{"nothing said", "", nil, settings{"", "kube-scheduler", "kube-system", true, 0}},
		{"an empty configuration", head, nil, settings{"", "kube-scheduler", "kube-system", true, 0}},
		{"a configuration", whole, nil, settings{"/from/file", "mine", "here", false, 30 * time.Second}},
		{"flags", whole, []string{"--kubeconfig=/from/flag", "--leader-elect", "--leader-elect-resource-name=flag"}, settings{"/from/flag", "flag", "here", true, 30 * time.Second}},
	} {
		profiles, err := scheduler.ParseConfig([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		p := &program{}
		if err := newCommand(p).ParseFlags(c.flags); err != nil {
			t.Fatal(err)
		}
		p.follow(profiles)
		if diff := cmp.Diff(c.want, settings{p.kubeconfig, p.leaseName, p.leaseNamespace, p.elect, p.lease.LeaseDuration.Duration}); diff != "" {
			t.Errorf("%s: settings differ (-want +got): %s", c.name, diff)
		}
	}
}
