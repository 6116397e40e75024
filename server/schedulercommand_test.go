package server_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/scheduler/command"
	"github.com/yare-project/yare/scheduler/framework"
	"github.com/yare-project/yare/server"
)

// dearest is a user's plugin that prefers what others avoid. It rates all nodes at once.
type dearest struct {
	nodes *framework.Nodes
	rated *atomic.Int32
}

func (dearest) Name() string                           { return "Dearest" }
func (dearest) ScoreScope() framework.Scope            { return framework.OnCluster }
func (dearest) Normalization() framework.Normalization { return framework.None }

func (d dearest) Score(_ *framework.Cycle, node int) int64 {
	if d.nodes.Object[node].Annotations["metrics.yare.io/price"] == "0.8" {
		return framework.MaxScore
	}
	return 0
}

func (d dearest) ScoreAll(c *framework.Cycle, in framework.Bits, scores []int64) {
	d.rated.Add(1)
	for i := range in.All() {
		scores[i] = d.Score(c, i)
	}
}

// A scheduler of a user's own, with a plugin of theirs, places the pods that name it, over HTTPS, beside the one in the server.
func TestSchedulerCommandWithAPluginPlacesItsPods(t *testing.T) {
	q := startQuick(t, without("node-lifecycle-controller"), func(c *server.Config) { c.WithoutNode = true })
	q.priced("cheap", "0.2")
	q.priced("dear", "0.8")
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: mine, plugins: {score: {enabled: [{name: Dearest, weight: 100}]}}}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var rated atomic.Int32
	c := command.New(command.WithPlugin("Dearest", func(_ []byte, h *framework.Handle) (framework.Plugin, error) {
		return dearest{h.Nodes, &rated}, nil
	}))
	c.SetArgs([]string{"--kubeconfig", q.config, "--config", file, "--log-level", "warn"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	for _, name := range []string{"one", "two"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{SchedulerName: "mine", Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1"}}}}
		if _, err := q.api.CoreV1().Pods("default").Create(q.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		q.lands(name, "dear")
	}
	if rated.Load() == 0 {
		t.Error("the plugin was not asked about all nodes at once")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}
