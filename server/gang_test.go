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
