package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	apiref "github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/scheduler"
)

// withExtender runs an extender with a function for each verb. It knows the nodes, and manages example.com/x unless it cares for all pods.
func withExtender(t *testing.T, more string, verbs map[string]func(args map[string]any) any) option {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		args := map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			t.Error(err)
		}
		verb := strings.TrimPrefix(r.URL.Path, "/")
		answer := verbs[verb](args)
		if answer == nil {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	body := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: '" + s.URL + "', nodeCacheCapable: true, httpTimeout: 20s"
	for verb := range verbs {
		body += ", " + verb + "Verb: " + verb
	}
	if more != "" {
		body += ", " + more
	}
	profiles, err := scheduler.ParseConfig([]byte(body + "}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *scheduler.Config) { c.Profiles = profiles }
}

const managed = "managedResources: [{name: example.com/x, ignoredByScheduler: true}]"

func wantsX(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Requests["example.com/x"] = resource.MustParse("1")
}

// knows waits until the scheduler has heard of a node, and so of those made before it.
func (c *cluster) knows(node string) {
	c.t.Helper()
	c.server.MustCreate(pod("probe-"+node, "0", onlyOn(node)))
	c.wait("the scheduler knows node "+node, func() bool { return c.nodeOf("probe-"+node) == node })
}

func onlyOn(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": node} }
}

func podName(args map[string]any) string {
	return args["Pod"].(map[string]any)["metadata"].(map[string]any)["name"].(string)
}

func TestExtenderFiltersAndRates(t *testing.T) {
	c := start(t, withExtender(t, managed+", weight: 3", map[string]func(map[string]any) any{
		"filter": func(args map[string]any) any {
			if podName(args) == "nowhere" {
				return map[string]any{"FailedNodes": map[string]string{"a": "no x", "b": "no x"}, "FailedAndUnresolvableNodes": map[string]string{"c": "never"}}
			}
			return map[string]any{"NodeNames": []string{"a", "c"}}
		},
		"prioritize": func(map[string]any) any {
			return []map[string]any{{"Host": "a", "Score": 1}, {"Host": "b", "Score": 10}, {"Host": "c", "Score": 9}}
		},
	}))
	c.server.MustCreate(node("a", "8"))
	c.server.MustCreate(node("b", "64"))
	c.server.MustCreate(node("c", "4"))
	c.knows("c")
	c.server.MustCreate(pod("x", "1", wantsX))
	c.wait("it is where the extender likes it, without a node that has the resource", func() bool { return c.nodeOf("x") == "c" })
	c.server.MustCreate(pod("plain", "1"))
	c.wait("a pod that the extender does not care for goes to the emptiest", func() bool { return c.nodeOf("plain") == "b" })
	c.server.MustCreate(pod("nowhere", "1", wantsX))
	c.wait("the extender's reasons are told", func() bool {
		return strings.HasPrefix(c.condition("nowhere").Message, "0/3 nodes are available: 1 never, 2 no x.")
	})
}

// TestSlowExtenderHoldsUpNobodyElse has an extender think while the cluster changes: other pods are placed, and the answer is followed only where it still holds.
func TestSlowExtenderHoldsUpNobodyElse(t *testing.T) {
	asked, answer := make(chan []any, 10), make(chan []string)
	c := start(t, withExtender(t, managed, map[string]func(map[string]any) any{"filter": func(args map[string]any) any {
		asked <- args["NodeNames"].([]any)
		return map[string]any{"NodeNames": <-answer}
	}}))
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("slow", "600m", wantsX))
	if got := fmt.Sprint(<-asked); got != "[a]" {
		t.Errorf("asked about %s, want [a]", got)
	}
	c.server.MustCreate(pod("quick", "600m"))
	c.wait("another pod is placed meanwhile", func() bool { return c.nodeOf("quick") == "a" })
	if w, ok, err := c.scheduler.Waiting(context.Background(), "default", "slow"); err != nil || !ok || w.Place != "asking" {
		t.Errorf("the pod is said to be %q (%v, %v), want asking", w.Place, ok, err)
	}
	answer <- []string{"a"}
	c.wait("the node that the answer names is full by now", func() bool { return strings.Contains(c.condition("slow").Message, "Insufficient cpu") })
	c.server.MustCreate(node("b", "1"))
	if got := fmt.Sprint(<-asked); got != "[b]" {
		t.Errorf("asked about %s, want [b]", got)
	}
	c.server.MustCreate(node("c", "1"))
	answer <- []string{"b"}
	c.wait("it is placed", func() bool { return c.nodeOf("slow") == "b" })
}

func TestPodThatGoesWhileExtendersThink(t *testing.T) {
	asked, answer := make(chan string, 10), make(chan string)
	c := start(t, withExtender(t, managed, map[string]func(map[string]any) any{"filter": func(args map[string]any) any {
		asked <- podName(args)
		return map[string]any{"NodeNames": []string{<-answer}}
	}}))
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("gone", "1", wantsX))
	<-asked
	if err := client.Of[*corev1.Pod](c.server).Delete(context.Background(), "default", "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.poll("the scheduler heard of it", 0, func() bool {
		_, known, err := c.scheduler.Waiting(context.Background(), "default", "gone")
		return err == nil && !known
	})
	answer <- "a"
	c.server.MustCreate(pod("next", "1", wantsX))
	if got := <-asked; got != "next" {
		t.Errorf("asked about %s", got)
	}
	answer <- "a"
	c.wait("the room was not taken by the pod that is gone", func() bool { return c.nodeOf("next") == "a" })
}

func TestExtenderThatFailsHasThePodRetried(t *testing.T) {
	var calls atomic.Int32
	c := start(t, withExtender(t, managed, map[string]func(map[string]any) any{"filter": func(map[string]any) any {
		if calls.Add(1) == 1 {
			return nil
		}
		return map[string]any{"NodeNames": []string{"a"}}
	}}))
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("p", "1", wantsX))
	c.wait("the failure is told", func() bool {
		x := c.condition("p")
		return x.Reason == corev1.PodReasonSchedulerError && strings.Contains(x.Message, "failed filter with extender at URL")
	})
	c.poll("it is placed after its back-off", time.Second, func() bool { return c.nodeOf("p") == "a" })
}

func TestExtenderBinds(t *testing.T) {
	var c *cluster
	ready := make(chan struct{})
	c = start(t, withExtender(t, managed, map[string]func(map[string]any) any{"bind": func(args map[string]any) any {
		<-ready
		if args["PodName"] == "refused" {
			return map[string]string{"Error": "not today"}
		}
		ref := apiref.Ref{GroupVersionResource: client.ResourceOf[*corev1.Pod](), Namespace: "default", Name: args["PodName"].(string), Subresource: "binding"}
		_, err := c.server.Create(context.Background(), ref, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: ref.Name,
			Annotations: map[string]string{"by": "extender"}}, Target: corev1.ObjectReference{Kind: "Node", Name: args["Node"].(string)}}, metav1.CreateOptions{})
		if err != nil {
			return map[string]string{"Error": err.Error()}
		}
		return map[string]string{}
	}}))
	close(ready)
	c.server.MustCreate(node("a", "4"))
	c.server.MustCreate(pod("x", "1", wantsX))
	c.wait("the extender bound it", func() bool { return c.nodeOf("x") == "a" })
	c.server.MustCreate(pod("plain", "1"))
	c.wait("others are bound as always", func() bool { return c.nodeOf("plain") == "a" })
	c.server.MustCreate(pod("refused", "1", wantsX))
	c.wait("its refusal is told", func() bool { return strings.Contains(c.condition("refused").Message, "binding rejected: not today") })
}

func TestExtenderSaysWhoIsPreempted(t *testing.T) {
	asked := make(chan map[string]any, 10)
	c := start(t, withExtender(t, managed, map[string]func(map[string]any) any{"preempt": func(args map[string]any) any {
		victims := args["NodeNameToMetaVictims"].(map[string]any)
		asked <- victims
		if podName(args) == "spurned" {
			return map[string]any{"NodeNameToMetaVictims": map[string]any{}}
		}
		return map[string]any{"NodeNameToMetaVictims": map[string]any{"b": victims["b"]}}
	}}))
	c.server.MustCreate(node("a", "1"))
	c.server.MustCreate(pod("low", "1", priority(1)))
	c.wait("low is placed", func() bool { return c.nodeOf("low") == "a" })
	c.server.MustCreate(node("b", "1"))
	c.server.MustCreate(pod("dear", "1", priority(5), onlyOn("b")))
	c.wait("dear is placed", func() bool { return c.nodeOf("dear") == "b" })
	c.server.MustCreate(pod("spurned", "1", priority(9), wantsX))
	if got := <-asked; len(got) != 2 {
		t.Errorf("asked about %v, want both nodes", got)
	}
	c.server.MustCreate(pod("high", "1", priority(9), wantsX))
	<-asked
	c.wait("the dear one has to leave, since the extender says so", func() bool { p := c.pod("dear"); return p == nil || p.DeletionTimestamp != nil })
	c.wait("the other is nominated for its node", func() bool { return c.pod("high").Status.NominatedNodeName == "b" })
	if p := c.pod("low"); p == nil || p.DeletionTimestamp != nil {
		t.Error("a pod was preempted that the extender did not agree to")
	}
	if got := c.pod("spurned").Status.NominatedNodeName; got != "" {
		t.Errorf("a pod that no node was left for is nominated for %q", got)
	}
}
