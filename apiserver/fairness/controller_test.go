package fairness_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/apiserver/fairness"
	"github.com/yare-project/yare/kinds/flowcontrol"
)

// full is a controller with the objects of a fresh cluster.
func full(t testing.TB, seats int, c clock.WithTicker, metrics prometheus.Registerer) *fairness.Controller {
	m, s := flowcontrol.Mandatory(), flowcontrol.Suggested()
	f := fairness.New(fairness.Config{Levels: m.Levels, Schemas: m.Schemas, Seats: seats, Clock: c, Metrics: metrics})
	for _, o := range append(m.Levels, s.Levels...) {
		o.UID = types.UID("level " + o.Name)
		f.Set(o)
	}
	for _, o := range append(m.Schemas, s.Schemas...) {
		o.UID = types.UID("schema " + o.Name)
		f.Set(o)
	}
	return f
}

func as(name string, groups ...string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
}

func request(who user.Info, verb, group, plural, sub, namespace string) fairness.Request {
	return fairness.Request{User: who, Verb: verb, Resource: true, Group: group, Version: "v1", Plural: plural, SubResource: sub, Namespace: namespace}
}

func TestWhichSchemaTakesWhom(t *testing.T) {
	f := full(t, 600, clocktesting.NewFakeClock(time.Now()), nil)
	node := as("system:node:n", user.NodesGroup)
	account := func(namespace, name string) *user.DefaultInfo {
		return as("system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	admin := as("admin", user.SystemPrivilegedGroup)
	path := func(who user.Info, verb, path string) fairness.Request {
		return fairness.Request{User: who, Verb: verb, Path: path}
	}
	for _, c := range []struct {
		q    fairness.Request
		want string
	}{
		{request(admin, "list", "", "pods", "", ""), "exempt"},
		{path(admin, "get", "/metrics"), "exempt"},
		{path(as("p"), "get", "/healthz"), "probes"},
		{path(as("p"), "get", "/readyz/ping"), "probes"},
		{path(as("p"), "post", "/healthz"), "global-default"},
		{path(&user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, "get", "/livez"), "probes"},
		{path(as("p"), "get", "/healthzz"), "global-default"},
		{request(node, "update", "coordination.k8s.io", "leases", "", "kube-node-lease"), "system-node-high"},
		{request(node, "patch", "", "nodes", "status", ""), "system-node-high"},
		{request(node, "patch", "", "pods", "status", "ns"), "system-nodes"},
		{request(node, "get", "", "nodes", "proxy", ""), "system-nodes"},
		{request(as(user.KubeControllerManager), "update", "coordination.k8s.io", "leases", "", "kube-system"), "system-leader-election"},
		{request(account("kube-system", "x"), "get", "coordination.k8s.io", "leases", "", "kube-system"), "system-leader-election"},
		{request(as(user.KubeControllerManager), "delete", "coordination.k8s.io", "leases", "", "kube-system"), "kube-controller-manager"},
		{request(as(user.KubeScheduler), "create", "", "pods", "binding", "ns"), "kube-scheduler"},
		{request(account("kube-system", "x"), "list", "", "pods", "", ""), "kube-system-service-accounts"},
		{request(account("kube-system-other", "x"), "list", "", "pods", "", ""), "service-accounts"},
		{request(account("default", "x"), "update", "coordination.k8s.io", "leases", "", "default"), "service-accounts"},
		{request(as("jane"), "list", "", "pods", "", ""), "global-default"},
		{request(&user.DefaultInfo{Name: "of no group"}, "list", "", "pods", "", ""), "catch-all"},
	} {
		k := &fairness.Ticket{Request: c.q}
		if err := f.Enter(context.Background(), k); err != nil {
			t.Errorf("%+v: %v", c.q, err)
			continue
		}
		if got := strings.Join(k.Schema(), ","); got != "schema "+c.want {
			t.Errorf("%s %s %s%s/%s of %s: taken by %q, want %q", c.q.Verb, c.q.Path, c.q.Plural, c.q.SubResource, c.q.Namespace, c.q.User.GetName(), got, c.want)
		}
		f.Leave(k)
	}
}

// hold enters requests of a user and keeps them in.
func hold(t *testing.T, f *fairness.Controller, q fairness.Request, n int) []*fairness.Ticket {
	t.Helper()
	var in []*fairness.Ticket
	for range n {
		k := &fairness.Ticket{Request: q}
		if err := f.Enter(context.Background(), k); err != nil {
			t.Fatal(err)
		}
		in = append(in, k)
	}
	return in
}

func seatsOf(t *testing.T, reg *prometheus.Registry, metric, level string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		if f.GetName() != "apiserver_flowcontrol_"+metric {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "priority_level" && l.GetValue() == level {
					sum, found = sum+m.GetGauge().GetValue()+m.GetCounter().GetValue(), true
				}
			}
		}
	}
	if !found {
		t.Fatalf("no %s of level %s", metric, level)
	}
	return sum
}

func TestNominalSeatsAreThoseOfKubernetes(t *testing.T) {
	reg := prometheus.NewRegistry()
	full(t, 600, clocktesting.NewFakeClock(time.Now()), reg)
	got := map[string][3]float64{}
	for _, level := range []string{"exempt", "catch-all", "system", "node-high", "leader-election", "workload-high", "workload-low", "global-default"} {
		got[level] = [3]float64{seatsOf(t, reg, "nominal_limit_seats", level), seatsOf(t, reg, "lower_limit_seats", level), seatsOf(t, reg, "upper_limit_seats", level)}
	}
	// As kube-apiserver 1.36 shows them with its default flags.
	want := map[string][3]float64{
		"exempt": {0, 0, 600}, "catch-all": {13, 13, 613}, "system": {74, 50, 674}, "node-high": {98, 73, 698}, "leader-election": {25, 25, 625},
		"workload-high": {98, 49, 698}, "workload-low": {245, 24, 845}, "global-default": {49, 24, 649},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestABusyLevelBorrowsFromIdleOnes(t *testing.T) {
	clk, reg := clocktesting.NewFakeClock(time.Now()), prometheus.NewRegistry()
	f := full(t, 60, clk, reg)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := request(as("jane"), "get", "", "pods", "", "ns")
	before := seatsOf(t, reg, "current_limit_seats", "global-default")
	// As many as may, and more who wait.
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for range 60 {
		all.Go(func() {
			k := &fairness.Ticket{Request: q}
			if f.Enter(ctx, k) == nil {
				<-ctx.Done()
				f.Leave(k)
			}
		})
	}
	eventually(t, func() bool {
		return seatsOf(t, reg, "current_executing_seats", "global-default")+seatsOf(t, reg, "current_inqueue_seats", "global-default") == 60
	})
	clk.Step(10 * time.Second)
	f.Borrow()
	after := seatsOf(t, reg, "current_limit_seats", "global-default")
	if after < 2*before {
		t.Errorf("its limit was %v and is %v, although nobody else needs seats", before, after)
	}
	if low := seatsOf(t, reg, "current_limit_seats", "leader-election"); low < 2 {
		t.Errorf("leader-election lends nothing, and has %v seats", low)
	}
	sum := 0.0
	for _, level := range []string{"catch-all", "system", "node-high", "leader-election", "workload-high", "workload-low", "global-default"} {
		sum += seatsOf(t, reg, "current_limit_seats", level)
	}
	if sum < 58 || sum > 72 {
		t.Errorf("the levels have %v seats in all", sum)
	}
	eventually(t, func() bool { return seatsOf(t, reg, "current_executing_seats", "global-default") == after })
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("not within 10 s")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestWhoWaitsTooLongIsToldToComeBack(t *testing.T) {
	clk, reg := clocktesting.NewFakeClock(time.Now()), prometheus.NewRegistry()
	f := full(t, 7, clk, reg) // one seat a level
	q := request(as("jane"), "get", "", "pods", "", "ns")
	in := hold(t, f, q, int(seatsOf(t, reg, "current_limit_seats", "global-default")))
	refused := make(chan error, 1)
	go func() { refused <- f.Enter(context.Background(), &fairness.Ticket{Request: q}) }()
	eventually(t, func() bool { return clk.HasWaiters() })
	clk.Step(14 * time.Second)
	select {
	case err := <-refused:
		t.Fatalf("refused too early: %v", err)
	default:
	}
	clk.Step(2 * time.Second) // a quarter of a minute
	err := <-refused
	if after, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || after < 1 {
		t.Errorf("answered %v", err)
	}
	if n := seatsOf(t, reg, "rejected_requests_total", "global-default"); n != 1 {
		t.Errorf("counted %v", n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { refused <- f.Enter(ctx, &fairness.Ticket{Request: q}) }()
	eventually(t, func() bool { return seatsOf(t, reg, "current_inqueue_requests", "global-default") == 1 })
	cancel()
	if err := <-refused; err != context.Canceled {
		t.Errorf("whose client had gone: %v", err)
	}
	f.Leave(in[0])
	if k := (&fairness.Ticket{Request: q}); f.Enter(context.Background(), k) != nil {
		t.Error("the freed seat is not to be had")
	}
}

// While requests are in a level that is deleted, it goes on; then it is gone, and its schema's requests go to the next that matches.
func TestALevelThatIsDeletedDrains(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := full(t, 60, clocktesting.NewFakeClock(time.Now()), reg)
	mine := &flowcontrolv1.PriorityLevelConfiguration{Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited,
		Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: ptr.To[int32](100), LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}}}}
	mine.Name, mine.UID = "mine", "level mine"
	schema := flowcontrol.Suggested().Schemas[8].DeepCopy()
	schema.Name, schema.UID, schema.Spec.MatchingPrecedence, schema.Spec.PriorityLevelConfiguration.Name = "mine", "schema mine", 50, "mine"
	f.Set(schema)
	q := request(as("jane"), "get", "", "pods", "", "ns")
	if k := hold(t, f, q, 1)[0]; k.Schema()[0] != "schema global-default" {
		t.Errorf("a dangling schema took it: %v", k.Schema())
	}
	f.Set(mine)
	k := hold(t, f, q, 1)[0]
	if k.Schema()[0] != "schema mine" || k.Level()[0] != "level mine" {
		t.Errorf("taken by %v %v", k.Schema(), k.Level())
	}
	f.Drop(mine)
	if !strings.Contains(table(f, "dump_priority_levels"), "mine") {
		t.Error("the level is gone with a request in it")
	}
	if other := hold(t, f, q, 1)[0]; other.Schema()[0] != "schema global-default" {
		t.Errorf("a new request was taken by %v", other.Schema())
	}
	f.Leave(k)
	f.Set(schema) // any change, as Run makes when it hears that the level is idle
	if strings.Contains(table(f, "dump_priority_levels"), "mine") {
		t.Error("an idle level that nobody wants stays")
	}
}

func table(f *fairness.Controller, name string) string {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest("GET", fairness.DebugPath+name+"?includeRequestDetails=1", nil))
	return w.Body.String()
}

func TestTablesAndMetricsShowWhatHappens(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := full(t, 245, clocktesting.NewFakeClock(time.Unix(1e9, 0)), reg) // a seat a share
	q := request(as("jane"), "list", "apps", "deployments", "", "ns")
	q.Work.Objects = 250
	k := hold(t, f, q, 1)[0]
	if got := table(f, "dump_requests"); !strings.Contains(got, "global-default") || !strings.Contains(got, "jane") || !strings.Contains(got, "apps/v1") {
		t.Error(got)
	}
	if got := table(f, "dump_queues"); strings.Count(got, "\n") != 2 {
		t.Error(got)
	}
	for level, want := range map[string]float64{"global-default": 3, "workload-low": 0, "exempt": 0} {
		if got := seatsOf(t, reg, "current_executing_seats", level); got != want {
			t.Errorf("%v seats of %s are taken, want %v", got, level, want)
		}
	}
	f.Leave(k)
	f.Leave(k) // once is enough
	if n := seatsOf(t, reg, "current_executing_seats", "global-default"); n != 0 {
		t.Errorf("%v seats are still taken", n)
	}
	if n := seatsOf(t, reg, "dispatched_requests_total", "global-default"); n != 1 {
		t.Errorf("%v were let in", n)
	}
}

// An administrator's request, a node's heartbeat and a user's list, each finding a free seat.
func BenchmarkUncontended(b *testing.B) {
	f := full(b, 600, clock.RealClock{}, nil)
	ctx := context.Background()
	for name, q := range map[string]fairness.Request{
		"admin":     request(as("admin", user.SystemPrivilegedGroup), "create", "", "configmaps", "", "ns"),
		"heartbeat": request(as("system:node:n", user.NodesGroup), "update", "coordination.k8s.io", "leases", "", "kube-node-lease"),
		"user":      request(as("jane"), "list", "", "pods", "", "ns"),
		"account":   request(as("system:serviceaccount:ns:a", "system:serviceaccounts", "system:serviceaccounts:ns"), "get", "", "pods", "", "ns"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			k := &fairness.Ticket{}
			for b.Loop() {
				*k = fairness.Ticket{Request: q}
				if err := f.Enter(ctx, k); err != nil {
					b.Fatal(err)
				}
				f.Leave(k)
			}
		})
	}
}
