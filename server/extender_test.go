package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/server"
)

// An HTTP extender of kube-scheduler, named in the server's scheduler configuration, has its say.
func TestExtenderFiltersForTheServersScheduler(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args struct{ Nodes corev1.NodeList } // it does not know the nodes
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil || r.URL.Path != "/v1/filter" {
			t.Errorf("asked %s: %v", r.URL, err)
		}
		left := corev1.NodeList{}
		refused := map[string]string{}
		for _, n := range args.Nodes.Items {
			if n.Annotations["metrics.yare.io/price"] == "0.8" {
				left.Items = append(left.Items, n)
			} else {
				refused[n.Name] = "too cheap"
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Nodes": left, "FailedNodes": refused})
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: '"+s.URL+"/v1', filterVerb: filter}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	q := startQuick(t, without("node-lifecycle-controller"), func(c *server.Config) { c.WithoutNode, c.SchedulerConfig = true, file })
	q.priced("cheap", "0.2")
	q.priced("dear", "0.8")
	for _, name := range []string{"one", "two"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1"}}}}
		if _, err := q.api.CoreV1().Pods("default").Create(q.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		q.lands(name, "dear")
	}
}
