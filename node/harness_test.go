package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/yare-project/yare/client"
	apifake "github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/node"
	crifake "github.com/yare-project/yare/node/cri/fake"
	"github.com/yare-project/yare/node/host"
)

// patience bounds every wait of these tests; reaching it is a failure.
const patience = 20 * time.Second

// machineUnderTest is one node agent with a fake API and a fake runtime.
type machineUnderTest struct {
	t      *testing.T
	api    *apifake.Transport
	rt     *crifake.Runtime
	clock  clock.WithTicker
	fake   *testingclock.FakeClock // nil: real time
	agent  *node.Agent
	root   string
	events *recorded
	stop   func()
	// cgroups is the group of all pods, where containers are real.
	cgroups string
}

type recorded struct {
	mu   sync.Mutex
	list []string
}

func (r *recorded) record(about corev1.ObjectReference, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprintf("%s %s %s %s: %s", about.Name, about.FieldPath, kind, reason, message))
}

func (r *recorded) has(parts ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.list {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(e, p)
		}
		if all {
			return true
		}
	}
	return false
}

func (r *recorded) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.list, "\n")
}

// newMachine starts an agent over an API with objects. With a fake clock, time stands still until m.step.
func newMachine(t *testing.T, fakeClock bool, objects ...client.Object) *machineUnderTest {
	t.Helper()
	m := &machineUnderTest{t: t, root: t.TempDir(), events: &recorded{}, clock: clock.RealClock{}}
	if fakeClock {
		m.fake = testingclock.NewFakeClock(time.Now().Truncate(time.Second))
		m.clock = m.fake
	}
	m.api = apifake.New(nil, objects...)
	m.rt = crifake.New(crifake.Config{Clock: m.clock})
	m.run()
	t.Cleanup(func() { m.stop() })
	return m
}

// run starts an agent; after stop it starts another one over what is there, as when Yare is started again.
func (m *machineUnderTest) run(change ...func(*node.Config)) {
	m.t.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{m.t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	caches := client.NewCaches(client.CachesConfig{Transport: m.api, Log: log})
	cfg := node.Config{Name: "n1", IPs: []string{"192.0.2.10"}, Root: m.root, LogRoot: m.root + "/log", Transport: m.api, Caches: caches,
		ClusterDNS: []string{"10.43.0.10"}, Clock: m.clock, Log: log, Event: m.events.record,
		Host: &host.Facts{CPUs: 4, Memory: 8 << 30, OOMFloor: 0, Arch: "amd64"}}
	if m.rt != nil {
		cfg.Runtime, cfg.Images = m.rt, m.rt
	}
	for _, f := range change {
		f(&cfg)
	}
	agent, err := node.New(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	m.agent = agent
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { caches.Run(ctx) })
	wg.Go(func() {
		if err := agent.Run(ctx); err != nil {
			m.t.Errorf("agent: %v", err)
		}
	})
	var once sync.Once
	m.stop = func() {
		once.Do(func() {
			cancel()
			wg.Wait()
		})
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// wait waits until cond holds of the API, checked after each write to it.
func (m *machineUnderTest) wait(what string, cond func() bool) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.api.Wait(ctx, cond); err != nil {
		m.t.Fatalf("%s: not within %s; events:\n%s\ncalls: %v\npods:\n%s", what, patience, m.events.all(), m.calls(), m.dump())
	}
}

// waitFor waits until cond holds of anything; it is for what no write to the API tells.
func (m *machineUnderTest) waitFor(what string, cond func() bool) {
	m.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			m.t.Fatalf("%s: not within %s; events:\n%s\ncalls: %v\npods:\n%s", what, patience, m.events.all(), m.calls(), m.dump())
		}
	}
}

func (m *machineUnderTest) dump() string {
	pods, err := client.Of[*corev1.Pod](m.api).List(context.Background(), "", metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&b, "%s: %+v\n", p.Name, p.Status)
	}
	return b.String()
}

func (m *machineUnderTest) pod(name string) *corev1.Pod {
	p, err := client.Of[*corev1.Pod](m.api).Get(context.Background(), "default", name)
	if err != nil {
		return nil
	}
	return p
}

func (m *machineUnderTest) create(o client.Object) {
	m.t.Helper()
	m.api.MustCreate(o)
}

func (m *machineUnderTest) delete(name string, grace *int64) {
	m.t.Helper()
	if err := client.Of[*corev1.Pod](m.api).Delete(context.Background(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: grace}); err != nil {
		m.t.Fatal(err)
	}
}

// waitPhase waits until a pod has a phase.
func (m *machineUnderTest) waitPhase(name string, phase corev1.PodPhase) {
	m.t.Helper()
	m.wait(fmt.Sprintf("pod %s is %s", name, phase), func() bool { p := m.pod(name); return p != nil && p.Status.Phase == phase })
}

// waitReady waits until a pod is ready.
func (m *machineUnderTest) waitReady(name string) {
	m.t.Helper()
	m.wait("pod "+name+" is ready", func() bool { return isReady(m.pod(name)) })
}

func isReady(p *corev1.Pod) bool {
	c := condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	if p == nil {
		return nil
	}
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func container(p *corev1.Pod, name string) *corev1.ContainerStatus {
	if p == nil {
		return &corev1.ContainerStatus{}
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return &corev1.ContainerStatus{}
}

func waiting(p *corev1.Pod, name string) string {
	if w := container(p, name).State.Waiting; w != nil {
		return w.Reason
	}
	return ""
}

// id is the id of a pod's container without the runtime's prefix.
func id(p *corev1.Pod, name string) string {
	_, id, _ := strings.Cut(container(p, name).ContainerID, "://")
	return id
}

// deleteNow deletes without grace.
var deleteNow = metav1.DeleteOptions{}

var serial int

// newPod makes a pod of one container "main" as the API would give it to the node.
func newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	serial++
	grace := int64(30)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(fmt.Sprintf("uid-%s-%d", name, serial)), Generation: 1,
			CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			DNSPolicy: corev1.DNSClusterFirst, ServiceAccountName: "default",
			Containers: []corev1.Container{ctr("main")}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func ctr(name string, command ...string) corev1.Container {
	return corev1.Container{Name: name, Image: "img/" + name + ":1", Command: command, ImagePullPolicy: corev1.PullIfNotPresent,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile}
}

func command(words ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Command = words }
}

func restart(policy corev1.RestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }
}

func quantities(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func ptr[T any](v T) *T { return &v }

// calls lists what a fake runtime was asked to do.
func (m *machineUnderTest) calls() []string {
	if m.rt == nil {
		return nil
	}
	return m.rt.Calls()
}
