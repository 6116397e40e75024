package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/server"
)

const ring = `apiVersion: scheduling.k8s.io/v1alpha2
kind: Workload
metadata: {name: training}
spec:
  podGroupTemplates:
  - {name: workers, schedulingPolicy: {gang: {minCount: 10}}}
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: ring}
spec:
  podGroupTemplateRef: {workload: {workloadName: training, podGroupTemplateName: workers}}
  schedulingPolicy: {gang: {minCount: 10}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: ring}
spec:
  parallelism: 10
  completions: 10
  template:
    spec:
      restartPolicy: Never
      schedulingGroup: {podGroupName: ring}
      containers: [{name: c, image: "example.org/app:1", resources: {requests: {cpu: "1"}}}]
`

// A Job's ten pods on nodes for eight wait together, and go together once there is a node more.
func TestGangOfAJob(t *testing.T) {
	q := startQuick(t, without("node-lifecycle-controller"), func(c *server.Config) { c.WithoutNode = true })
	q.priced("a", "0") // 8 processors
	if out, err := q.kubectl(ring, "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	bound := func(ctx context.Context) (n int, err error) {
		list, err := q.api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "job-name=ring"})
		if err != nil {
			return 0, err
		}
		for _, p := range list.Items {
			if p.Spec.NodeName != "" {
				n++
			}
		}
		return n, nil
	}
	q.until("the group says why it waits", func(ctx context.Context) error {
		out, err := q.kubectl("", "get", "podgroup", "ring", "-o", "jsonpath={.status.conditions[0].message}")
		if want := `pod group "ring": 8 of its pods find a place, and 10 must at once: `; err != nil || !strings.HasPrefix(out, want) {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
	if n, err := bound(t.Context()); n != 0 || err != nil {
		t.Fatalf("%d pods of the gang are bound, %v", n, err)
	}
	q.priced("b", "0")
	q.until("all are bound", func(ctx context.Context) error {
		n, err := bound(ctx)
		if err == nil && n != 10 {
			err = fmt.Errorf("%d are", n)
		}
		return err
	})
	q.until("kubectl shows it", func(context.Context) error {
		out, err := q.kubectl("", "get", "podgroup", "ring", "--no-headers")
		if f := strings.Fields(out); err != nil || len(f) < 4 || strings.Join(f[:4], " ") != "ring Gang training Scheduled" {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
	missing := strings.ReplaceAll(strings.ReplaceAll(ring, "workloadName: training", "workloadName: other"), "name: ring", "name: second")
	if out, err := q.kubectl(missing, "apply", "-f", "-"); err == nil || !strings.Contains(out, `PodGroup rejected: Workload "other" not found`) {
		t.Errorf("a group of a workload that does not exist was taken: %s", out)
	}
}

// contender is a gang of a Job's pods, each of one processor, which leave at once when they must.
func contender(name string, pods int, class string) string {
	return fmt.Sprintf(`apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: %[1]s}
spec: {schedulingPolicy: {gang: {minCount: %[2]d}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s}
spec:
  parallelism: %[2]d
  completions: %[2]d
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      priorityClassName: %[3]q
      schedulingGroup: {podGroupName: %[1]s}
      containers: [{name: c, image: "example.org/app:1", resources: {requests: {cpu: "1"}}}]
---
`, name, pods, class)
}

// Two gangs that have room for one do not hold half of it each; a gang of higher priority takes it all. A group stays while its pods do.
func TestGangsCompete(t *testing.T) {
	q := startQuick(t, without("node-lifecycle-controller"), func(c *server.Config) { c.WithoutNode = true })
	q.priced("a", "0") // 8 processors
	bound := func(ctx context.Context, job string) (n int, err error) {
		list, err := q.api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + job})
		if err != nil {
			return 0, err
		}
		for _, p := range list.Items {
			if p.Spec.NodeName != "" {
				n++
			}
		}
		return n, nil
	}
	class := "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000\n---\n"
	if out, err := q.kubectl(class+contender("port", 6, "")+contender("starboard", 6, ""), "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	q.until("one gang is bound, and the other told why", func(ctx context.Context) error {
		out, err := q.kubectl("", "get", "podgroups", "-o", "jsonpath={.items[*].status.conditions[*].reason}")
		x, _ := bound(ctx, "port")
		y, _ := bound(ctx, "starboard")
		if fields := strings.Fields(out); err != nil || len(fields) != 2 || fields[0] == fields[1] || x+y != 6 || x*y != 0 {
			return fmt.Errorf("%d and %d pods are bound, %v: %s", x, y, err, out)
		}
		return nil
	})
	winner := "port"
	if n, err := bound(t.Context(), "starboard"); n > 0 || err != nil {
		winner = "starboard"
	}
	if out, err := q.kubectl(contender("big", 8, "high"), "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	q.until("the gang of higher priority has all the room", func(ctx context.Context) error {
		n, err := bound(ctx, "big")
		left, _ := bound(ctx, winner)
		if err == nil && (n != 8 || left != 0) {
			err = fmt.Errorf("%d of its pods are bound, and %d of the one that left", n, left)
		}
		return err
	})
	if out, err := q.kubectl("", "patch", "job", "big", "-p", `{"spec":{"parallelism":3}}`); err == nil || !strings.Contains(out, `cannot change parallelism for a Job referencing gang-scheduled PodGroup "big"`) {
		t.Errorf("the parallelism of a gang's Job was changed: %s", out)
	}
	if out, err := q.kubectl("", "delete", "podgroup", "big", "--wait=false"); err != nil {
		t.Fatal(out)
	}
	if out, err := q.kubectl("", "get", "podgroup", "big", "-o", "jsonpath={.metadata.deletionTimestamp} {.metadata.finalizers}"); err != nil || !strings.Contains(out, "scheduling.k8s.io/podgroup-protection") {
		t.Errorf("a group goes while its pods run: %v %s", err, out)
	}
	if out, err := q.kubectl("", "delete", "job", "big"); err != nil {
		t.Fatal(out)
	}
	q.until("the group is gone", func(context.Context) error {
		if out, err := q.kubectl("", "get", "podgroup", "big"); err == nil {
			return fmt.Errorf("it is there: %s", out)
		}
		return nil
	})
}
