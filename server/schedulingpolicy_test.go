package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/server"
)

const cheapest = `apiVersion: scheduling.yare.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: cheapest}
spec:
  podSelector: {matchLabels: {tier: batch}}
  filters:
  - {expression: 'metrics.price < 1', message: the node costs too much}
  scores:
  - {expression: metrics.price, worst: "1", best: "0", weight: 100}
`

// kubectl runs kubectl with input and returns what it prints.
func (q *quick) kubectl(input string, args ...string) (string, error) {
	q.Helper()
	c := exec.CommandContext(q.Context(), "kubectl", append([]string{"--kubeconfig", q.config}, args...)...)
	c.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.String(), err
}

func (q *quick) priced(name, price string) {
	q.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"metrics.yare.io/price": price}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")}
	n.Status.Capacity = n.Status.Allocatable
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	if _, err := q.api.CoreV1().Nodes().Create(q.Context(), n, metav1.CreateOptions{}); err != nil {
		q.Fatal(err)
	}
	status, err := json.Marshal(map[string]any{"status": n.Status})
	if err != nil {
		q.Fatal(err)
	}
	if _, err := q.api.CoreV1().Nodes().Patch(q.Context(), name, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		q.Fatal(err)
	}
	q.price(name, price)
}

// price sets a node's price, and takes off the taint that a new node has until it is seen to be ready.
func (q *quick) price(name, price string) {
	q.Helper()
	body := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"metrics.yare.io/price":%q}},"spec":{"taints":null}}`, price))
	if _, err := q.api.CoreV1().Nodes().Patch(q.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		q.Fatal(err)
	}
}

func (q *quick) batchPod(name string) {
	q.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": "batch"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1"}}}}
	if _, err := q.api.CoreV1().Pods("default").Create(q.Context(), p, metav1.CreateOptions{}); err != nil {
		q.Fatal(err)
	}
}

func (q *quick) lands(name, node string) {
	q.Helper()
	q.until(name+" lands on "+node, func(ctx context.Context) error {
		p, err := q.api.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Spec.NodeName != node {
			err = fmt.Errorf("it is on %q: %+v", p.Spec.NodeName, p.Status.Conditions)
		}
		return err
	})
}

// without ends the node lifecycle loop: it would find nobody behind the nodes of these tests.
func without(controllers ...string) func(*server.Config) {
	return func(c *server.Config) {
		c.Controllers = []string{"*"}
		for _, name := range controllers {
			c.Controllers = append(c.Controllers, "-"+name)
		}
	}
}

func TestSchedulingPolicyPlacesByPrice(t *testing.T) {
	q := startQuick(t, without("node-lifecycle-controller"), func(c *server.Config) { c.WithoutNode = true })
	q.priced("cheap", "0.2")
	q.priced("dear", "0.8")
	q.priced("far-too-dear", "7")
	if out, err := q.kubectl(cheapest, "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	q.until("the policy is active", func(context.Context) error {
		out, err := q.kubectl("", "get", "schedulingpolicies", "--no-headers")
		if fields := strings.Fields(out); err == nil && (len(fields) < 5 || fields[1] != "tier=batch" || fields[4] != "True") {
			err = fmt.Errorf("it is shown as %s", out)
		}
		return err
	})
	for i := range 3 {
		name := fmt.Sprintf("first-%d", i)
		q.batchPod(name)
		q.lands(name, "cheap")
	}
	q.price("cheap", "0.9")
	q.batchPod("second")
	q.lands("second", "dear")

	q.price("cheap", "2")
	q.price("dear", "2")
	q.batchPod("third")
	q.until("it is told why not", func(ctx context.Context) error {
		p, err := q.api.CoreV1().Pods("default").Get(ctx, "third", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.HasPrefix(c.Message, `0/3 nodes are available: 3 node(s) refused by SchedulingPolicy "cheapest": the node costs too much.`) {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
	q.price("dear", "0.5") // the metric wakes it
	q.lands("third", "dear")

	q.price("dear", "2")
	q.batchPod("fourth")
	if out, err := q.kubectl("", "delete", "schedulingpolicy", "cheapest"); err != nil { // and so does the policy
		t.Fatal(out)
	}
	q.until("fourth is placed", func(ctx context.Context) error {
		p, err := q.api.CoreV1().Pods("default").Get(ctx, "fourth", metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			err = fmt.Errorf("conditions %+v", p.Status.Conditions)
		}
		return err
	})
}

func TestSchedulingPolicyIsCheckedAndExplained(t *testing.T) {
	q := startQuick(t, func(c *server.Config) { c.WithoutNode = true })
	for old, replaced := range map[string][2]string{
		"a field that is not there": {"metrics.price < 1", "node.lables.zone == \"a\""}, "no bool": {"metrics.price < 1", "metrics.price"},
		"too dear": {"metrics.price < 1", "node.labels.all(a, node.labels.all(b, node.labels[a] != node.labels[b]))"},
	} {
		want := map[string]string{
			"a field that is not there": `spec.filters[0].expression: Invalid value: "node.lables.zone == \"a\"": compilation failed: ERROR: <input>:1:5: undefined field 'lables'`,
			"no bool":                   "must give a bool, not double", "too dear": "the limit is 10000",
		}[old]
		out, err := q.kubectl(strings.Replace(cheapest, replaced[0], replaced[1], 1), "apply", "-f", "-")
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v: %s\nwant %s", old, err, out, want)
		}
	}
	out, err := q.kubectl("", "explain", "schedpol.spec.scores")
	for _, want := range []string{"GROUP:", "scheduling.yare.io", "The number that scores 0", "<integer>"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("explain: %v, no %q in:\n%s", err, want, out)
		}
	}
	out, err = q.kubectl(cheapest, "apply", "--server-side", "-f", "-")
	if err != nil {
		t.Fatal(out)
	}
	out, err = q.kubectl(strings.Replace(cheapest, "weight: 100", "weight: 5", 1), "apply", "--server-side", "-f", "-")
	if err != nil {
		t.Fatal(out)
	}
	out, err = q.kubectl("", "get", "schedpol", "cheapest", "-o", "jsonpath={.spec.scores[*].weight} {.spec.filters[0].failurePolicy} {.metadata.generation}")
	if err != nil || out != "5 Refuse 2" {
		t.Errorf("after a change: %v %q", err, out)
	}
}
