package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/simulate"
)

func (p *plane) simulate(stdin string, args ...string) simulate.Report {
	p.Helper()
	var out bytes.Buffer
	command := simulateCommand()
	command.SetIn(strings.NewReader(stdin))
	command.SetOut(&out)
	command.SetErr(&out)
	command.SetArgs(append([]string{"--kubeconfig", p.kubeconfig, "-o", "json"}, args...))
	if err := command.ExecuteContext(p.Context()); err != nil {
		p.Fatalf("simulate %v: %v", args, err)
	}
	var r simulate.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		p.Fatalf("%v in %s", err, out.String())
	}
	return r
}

// TestSimulateForetells asks about random pods, one after the other, then gives each to a control plane: what was foretold must come. Where the scheduler has a choice between nodes
// that are equally good, which several seeds show, the pod is not given.
func TestSimulateForetells(t *testing.T) {
	p := startControlPlane(t)
	for name, value := range map[string]int32{"low": -10, "high": 1000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if _, err := p.api.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	if text := os.Getenv("SIMULATE_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p.addNode("n1", "3")
	p.addNode("n2", "5")
	p.addNode("n3", "8", corev1.Taint{Key: "for", Value: "gpu", Effect: corev1.TaintEffectNoSchedule})
	p.addNode("n4", "2500m", corev1.Taint{Key: "old", Effect: corev1.TaintEffectPreferNoSchedule})
	p.until("the default service account", func() bool {
		_, err := p.api.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	seen := map[string]int{}
	for k := 0; k < 30 || k < 90 && seen["by eviction"] == 0; k++ {
		pod := randomPod(rng, k)
		body, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		told := p.simulate(string(body), "-f", "-").Pods[0]
		if p.chance(string(body), told) {
			seen["by chance"]++
			continue
		}
		came := p.outcome(pod, told)
		if diff := cmp.Diff(told, came); diff != "" {
			t.Fatalf("%s\nforetold -, came +:\n%s\nSIMULATE_SEED=%d tries it again", body, diff, seed)
		}
		switch {
		case told.Node == "":
			seen["nowhere"]++
			// A pod that waits would compete with the next ones for what evictions leave, and who is the first is by chance.
			if err := p.api.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		case len(told.Evicts) > 0:
			seen["by eviction"]++
		default:
			seen["placed"]++
		}
	}
	t.Log(seen)
	if seen["nowhere"] == 0 || seen["by eviction"] == 0 || seen["placed"] == 0 {
		t.Errorf("seed %d: too few sorts of outcomes: %v", seed, seen)
	}
}

// chance tells whether other seeds foretell something else.
func (p *plane) chance(body string, told simulate.Placement) bool {
	seeds := 4
	if len(told.Evicts) > 0 {
		seeds = 12 // whom to evict is more often by chance
	}
	for seed := 2; seed < 2+seeds; seed++ {
		if other := p.simulate(body, "-f", "-", "--seed", fmt.Sprint(seed)).Pods[0]; !cmp.Equal(told, other) {
			return true
		}
	}
	return false
}

// outcome creates a pod and waits until the scheduler is done with it; told only says what is worth waiting for.
func (p *plane) outcome(pod *corev1.Pod, told simulate.Placement) simulate.Placement {
	p.Helper()
	before := p.pods()
	if _, err := p.api.CoreV1().Pods("default").Create(p.Context(), pod, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
	came := simulate.Placement{Pod: "default/" + pod.Name, Workload: "Pod/" + pod.Name}
	p.until("a decision about "+pod.Name, func() bool {
		o, err := p.api.CoreV1().Pods("default").Get(p.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			p.Fatal(err)
		}
		if came.Node = o.Spec.NodeName; came.Node != "" {
			return true
		}
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && o.Status.NominatedNodeName == "" && told.Node == "" {
				came.Why = c.Message
				return true
			}
		}
		return false
	})
	for _, name := range told.Evicts { // a pod may be bound before all that make room for it are gone
		p.until(name+", which "+pod.Name+" was to evict, is gone", func() bool { return !p.pods()[strings.TrimPrefix(name, "default/")] })
	}
	after := p.pods()
	for name := range before {
		if !after[name] {
			came.Evicts = append(came.Evicts, "default/"+name)
		}
	}
	slices.Sort(came.Evicts)
	came.Changes = told.Changes // the API does not tell them but in words
	return came
}

func (p *plane) pods() map[string]bool {
	p.Helper()
	list, err := p.api.CoreV1().Pods("default").List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	out := map[string]bool{}
	for _, o := range list.Items {
		out[o.Name] = true
	}
	return out
}

// randomPod goes at once when it is told to: there is no node agent to end it.
func randomPod(rng *rand.Rand, k int) *corev1.Pod {
	app := []string{"a", "b", "c"}[rng.IntN(3)]
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", k), Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0), PriorityClassName: []string{"", "low", "low", "high"}[rng.IntN(4)],
			Containers: []corev1.Container{{Name: "c", Image: "none.invalid/x", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(int64(100+rng.IntN(1500)), resource.DecimalSI)}}}}}}
	if rng.IntN(3) == 0 {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "for", Operator: corev1.TolerationOpExists}}
	}
	others := []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	switch rng.IntN(6) {
	case 0:
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: others}}
	case 1:
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: others}}
	case 2:
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: others[0].LabelSelector}}
	}
	return pod
}

func TestSimulateReplaysASnapshot(t *testing.T) {
	p := startControlPlane(t)
	p.addNode("n1", "2")
	p.addPod("running", "1")
	p.until("the pod is bound", func() bool {
		o, err := p.api.CoreV1().Pods("default").Get(t.Context(), "running", metav1.GetOptions{})
		return err == nil && o.Spec.NodeName == "n1"
	})
	if _, err := p.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, StringData: map[string]string{"key": "s3cret"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const web = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}," +
		" spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 400m}}}]}}}}"
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "web.yaml"), []byte(web), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cluster.json", "cluster.json.gz"} {
		snapshot := filepath.Join(t.TempDir(), name)
		live := p.simulate("", "-f", folder, "--save", snapshot, "--fit")
		again := p.simulate("", "-f", folder, "--snapshot", snapshot, "--fit", "--kubeconfig", "/does/not/exist")
		if diff := cmp.Diff(live, again); diff != "" {
			t.Errorf("%s: live -, replayed +:\n%s", name, diff)
		}
		if len(live.Pods) != 3 || live.Pods[0].Node != "n1" || live.Pods[2].Node != "" || !strings.Contains(live.Pods[2].Why, "Insufficient cpu") {
			t.Errorf("the report is %+v", live)
		}
		body, err := os.ReadFile(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		if name == "cluster.json" && (strings.Contains(string(body), "Secret") || !strings.Contains(string(body), `"name":"running"`)) {
			t.Errorf("the snapshot is\n%s", body)
		}
	}
	if o, err := p.api.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(o.Items) != 1 {
		t.Errorf("a simulation changed the cluster: %v %v", o, err)
	}
}

func TestSimulateRefuses(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	snapshot := file("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
	pod := file("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: x}]}}")
	for _, c := range [][]string{
		{"nothing to simulate"},
		{"-f", pod, "-o", "xml", "plain, json or yaml"},
		{"--snapshot", snapshot, "--without-node", "n2", `node "n2" is not in the cluster`},
		{"--snapshot", snapshot, "-f", pod, "--node-like", "n2", `node "n2" is not in the cluster`},
		{"--snapshot", snapshot, "-f", pod, "--node", "8", "cpu=8,memory=32Gi,pods=110"},
		{"--snapshot", snapshot, "-f", pod, "--node", "cpu=many", `cpu="many": not an amount`},
		{"--snapshot", snapshot, "-f", pod, "--node-labels", "a=b", "give one of them too"},
		{"--snapshot", snapshot, "-f", pod, "--node-like", "n1", "--node-taints", "a=b", "KEY=VALUE:EFFECT"},
		{"--snapshot", snapshot, "-f", file("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {contaners: []}}"), `unknown field "spec.contaners"`},
		{"--snapshot", snapshot, "-f", file("{kind: Pod}"), "apiVersion and kind are needed"},
		{"--snapshot", file("nonsense"), "-f", pod, "--snapshot: "},
		{"--snapshot", snapshot, "-f", t.TempDir(), "no .yaml, .yml or .json files"},
		{"--snapshot", snapshot, "-f", pod, "--config", file("{apiVersion: v1, kind: Pod}"), "KubeSchedulerConfiguration"},
	} {
		want := c[len(c)-1]
		if got := fails(t, simulateCommand(), c[:len(c)-1]...); !strings.Contains(got, want) {
			t.Errorf("%v: %q does not say %q", c, got, want)
		}
	}
}
