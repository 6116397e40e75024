package apiserver_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestDeleteWaitsForFinalizers(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	cm := configMap("a", nil)
	cm.Finalizers = []string{"example.com/hold"}
	must(c.Create(ctx, cm, metav1.CreateOptions{}))
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	marked := must(c.Get(ctx, "a", metav1.GetOptions{}))
	if marked.DeletionTimestamp == nil || marked.DeletionGracePeriodSeconds == nil || *marked.DeletionGracePeriodSeconds != 0 {
		t.Fatalf("not marked: %+v", marked.ObjectMeta)
	}
	rv := marked.ResourceVersion
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if marked = must(c.Get(ctx, "a", metav1.GetOptions{})); marked.ResourceVersion != rv {
		t.Fatal("a second delete wrote")
	}
	more := marked.DeepCopy()
	more.Finalizers = append(more.Finalizers, "example.com/late")
	if _, err := c.Update(ctx, more, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "no new finalizers can be added if the object is being deleted") {
		t.Fatalf("a late finalizer: %v", err)
	}
	marked.Finalizers = nil
	if _, err := c.Update(ctx, marked, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("it outlived its last finalizer: %v", err)
	}
}

func TestDeletePropagation(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	for policy, finalizer := range map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationOrphan: "orphan", metav1.DeletePropagationForeground: "foregroundDeletion", metav1.DeletePropagationBackground: ""} {
		name := strings.ToLower(string(policy))
		must(c.Create(ctx, configMap(name, nil), metav1.CreateOptions{}))
		if err := c.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(ctx, name, metav1.GetOptions{})
		if finalizer == "" {
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", policy, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Finalizers, []string{finalizer}) || got.DeletionTimestamp == nil {
			t.Errorf("%s: %+v %v", policy, got, err)
		}
	}
	if err := c.Delete(ctx, "orphan", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletionPropagation("Sideways"))}); !apierrors.IsInvalid(err) {
		t.Errorf("an unknown policy: %v", err)
	}
}

func TestGracefulDelete(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().Pods("ns")
	create := func(name, node string) *corev1.Pod {
		return must(c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}, metav1.CreateOptions{}))
	}
	create("unscheduled", "")
	if err := c.Delete(ctx, "unscheduled", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "unscheduled", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal("a pod without a node waits for one")
	}
	p := create("p", "n1")
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	marked := must(c.Get(ctx, "p", metav1.GetOptions{}))
	if marked.DeletionTimestamp == nil || *marked.DeletionGracePeriodSeconds != 30 || marked.Generation != p.Generation+1 {
		t.Fatalf("marked %+v", marked.ObjectMeta)
	}
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(60))}); err != nil {
		t.Fatal(err)
	}
	if got := must(c.Get(ctx, "p", metav1.GetOptions{})); *got.DeletionGracePeriodSeconds != 30 {
		t.Fatalf("a deletion was slowed to %d", *got.DeletionGracePeriodSeconds)
	}
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(5))}); err != nil {
		t.Fatal(err)
	}
	hastened := must(c.Get(ctx, "p", metav1.GetOptions{}))
	if *hastened.DeletionGracePeriodSeconds != 5 || !hastened.DeletionTimestamp.Before(marked.DeletionTimestamp) {
		t.Fatalf("hastened %+v", hastened.ObjectMeta)
	}
	hastened.Status.Phase = corev1.PodSucceeded
	must(c.UpdateStatus(ctx, hastened, metav1.UpdateOptions{}))
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)), Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}}); !apierrors.IsConflict(err) {
		t.Fatalf("another's uid: %v", err)
	}
	if err := c.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal("the pod is still there")
	}
}

func TestDeleteAnswers(t *testing.T) {
	h := start(t)
	h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"a"}}`)
	got := h.do("DELETE", "/api/v1/namespaces/ns/configmaps/a", "").json(t)
	details, _ := got["details"].(map[string]any)
	if got["kind"] != "Status" || got["status"] != "Success" || details["name"] != "a" || details["kind"] != "configmaps" || details["uid"] == "" {
		t.Fatalf("answered %v", got)
	}
	h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"b","finalizers":["example.com/x"]}}`)
	if got := h.do("DELETE", "/api/v1/namespaces/ns/configmaps/b", `{"kind":"DeleteOptions","apiVersion":"apps/v1"}`).json(t); got["kind"] != "ConfigMap" {
		t.Fatalf("answered %v", got)
	}
	if a := h.do("DELETE", "/api/v1/namespaces/ns/configmaps/b", `{"kind":"Pod","apiVersion":"v1"}`); a.code != 400 {
		t.Fatalf("another body: %+v", a)
	}
}

func TestDeleteCollection(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	for _, name := range []string{"a", "b", "c"} {
		cm := configMap(name, nil)
		cm.Labels = map[string]string{"keep": map[bool]string{true: "yes", false: "no"}[name == "c"]}
		must(c.Create(ctx, cm, metav1.CreateOptions{}))
	}
	must(h.client().CoreV1().ConfigMaps("other").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"keep": "no"}}}, metav1.CreateOptions{}))
	if err := c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "keep=no"}); err != nil {
		t.Fatal(err)
	}
	left := must(h.client().CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{}))
	var names []string
	for _, o := range left.Items {
		names = append(names, o.Namespace+"/"+o.Name)
	}
	if !slices.Equal(names, []string{"ns/c", "other/a"}) {
		t.Fatalf("left: %v", names)
	}
}

// A kind may hold its deleted objects by more than finalizers in the metadata.
func TestDeletedNamespaceWaitsToBeFinalized(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().Namespaces()
	must(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}, metav1.CreateOptions{}))
	for range 2 {
		if err := c.Delete(ctx, "n", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n := must(c.Get(ctx, "n", metav1.GetOptions{}))
	if n.DeletionTimestamp == nil || n.Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("marked %+v", n)
	}
	n.Labels = map[string]string{"a": "b"}
	n = must(c.Update(ctx, n, metav1.UpdateOptions{}))
	n.Spec.Finalizers = nil
	must(c.Finalize(ctx, n, metav1.UpdateOptions{}))
	if _, err := c.Get(ctx, "n", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal("it is still there")
	}
}

func TestStatusOnCreate(t *testing.T) {
	h := start(t)
	node := must(h.client().CoreV1().Nodes().Create(within(t), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Phase: corev1.NodeRunning}}, metav1.CreateOptions{}))
	if node.Status.Phase != corev1.NodeRunning {
		t.Fatal("the status that registered the node is lost")
	}
}

// A delete that is done at once answers with the object for some kinds, with a Status for the others.
func TestAnswersToDelete(t *testing.T) {
	h := start(t)
	ctx := within(t)
	must(h.client().CoreV1().Pods("ns").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}}}, metav1.CreateOptions{}))
	cm := must(h.client().CoreV1().ConfigMaps("ns").Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
	pod := h.do("DELETE", "/api/v1/namespaces/ns/pods/a", "").json(t)
	if labels, _, _ := unstructured.NestedString(pod, "metadata", "labels", "x"); pod["kind"] != "Pod" || labels != "y" {
		t.Errorf("a pod: %v", pod)
	}
	status := h.do("DELETE", "/api/v1/namespaces/ns/configmaps/a", "").json(t)
	if uid, _, _ := unstructured.NestedString(status, "details", "uid"); status["kind"] != "Status" || uid != string(cm.UID) {
		t.Errorf("a ConfigMap: %v", status)
	}
}
