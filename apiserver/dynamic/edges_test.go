package dynamic_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	regv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/apiserver/dynamic"
	"github.com/yare-project/yare/internal/resource"
)

func TestServicesAreFoundByTheirReadyEndpoints(t *testing.T) {
	g, ctx := newGate(t), context.Background()
	g.must(g.CoreV1().Services("ns").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone,
		Ports: []corev1.ServicePort{{Name: "tls", Port: 443, TargetPort: intstr.FromInt(8443)}, {Name: "other", Port: 80}}}}, metav1.CreateOptions{}))
	resolve := dynamic.Resolve(g.server.Env())
	refused := func(port int32, want string) {
		t.Helper()
		if got, err := resolve(ctx, "ns", "hook", port); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v %v, want %s", got, err, want)
		}
	}
	refused(443, `no endpoints available for service "hook"`)
	endpoint := func(ready bool, address string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	}
	g.must(g.DiscoveryV1().EndpointSlices("ns").Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("other"), Port: ptr.To(int32(80))}, {Name: ptr.To("tls"), Port: ptr.To(int32(8443))}},
		Endpoints: []discoveryv1.Endpoint{endpoint(true, "10.1.1.1"), endpoint(false, "10.1.1.2"), endpoint(true, "10.1.1.3")}}, metav1.CreateOptions{}))
	got, err := resolve(ctx, "ns", "hook", 443)
	g.must(got, err)
	slices.Sort(got)
	if d := cmp.Diff([]string{"10.1.1.1:8443", "10.1.1.3:8443"}, got); d != "" {
		t.Error(d)
	}
	refused(444, `no service port 444 found for service "hook"`)
}

func TestConnectionsAreShownWithTheirOptions(t *testing.T) {
	g, ctx := newGate(t), context.Background()
	g.must(g.CoreV1().Pods("ns").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{}))
	hook := newRemote(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if r.Operation != admissionv1.Connect {
			return yes()
		}
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "no shells here"}}
	})
	g.register("x", []regv1.ValidatingWebhook{validating(hook, func(w *regv1.ValidatingWebhook) {
		w.Rules = append(w.Rules, regv1.RuleWithOperations{Operations: []regv1.OperationType{"CONNECT"}, Rule: regv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/exec"}}})
	})})
	err := g.CoreV1().RESTClient().Post().Namespace("ns").Resource("pods").Name("p").SubResource("exec").
		Param("container", "c").Param("stdin", "true").Param("command", "sh").Param("command", "-c").Do(ctx).Error()
	if err == nil || !strings.Contains(err.Error(), `admission webhook "check.example.com" denied the request: no shells here`) {
		t.Fatal(err)
	}
	calls := hook.calls()
	request := calls[len(calls)-1].Request
	var got corev1.PodExecOptions
	if err := json.Unmarshal(request.Object.Raw, &got); err != nil {
		t.Fatal(err)
	}
	want := corev1.PodExecOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodExecOptions"}, Container: "c", Stdin: true, Command: []string{"sh", "-c"}}
	if d := cmp.Diff(want, got); d != "" || request.Kind.Kind != "PodExecOptions" || request.SubResource != "exec" || request.Name != "p" || len(request.OldObject.Raw) > 0 && string(request.OldObject.Raw) != "null" {
		t.Errorf("%s\n%+v", d, request)
	}
}

// A webhook for everything that nobody answers must not keep the server itself from starting, and may be taken away again.
func TestALockedClusterCanBeOpened(t *testing.T) {
	g, ctx := newGate(t), context.Background()
	hook := newRemote(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil })
	g.register("x", []regv1.ValidatingWebhook{validating(hook, func(w *regv1.ValidatingWebhook) {
		w.Rules[0].APIGroups, w.Rules[0].APIVersions, w.Rules[0].Resources = []string{"*"}, []string{"*"}, []string{"*/*"}
	})})
	if _, err := g.create("ns", configMap("a")); !apierrors.IsInternalError(err) {
		t.Errorf("%v", err)
	}
	ref := resource.Ref{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "ns"}
	_, err := g.server.Local(&user.DefaultInfo{Name: g.own.GetName(), Groups: g.own.GetGroups()}).Create(ctx, ref, configMap("b"), metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) {
		t.Errorf("somebody of the server's name: %v", err)
	}
	g.must(g.server.Local(g.own).Create(ctx, ref, configMap("b"), metav1.CreateOptions{}))
	g.must(nil, g.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, "x", metav1.DeleteOptions{}))
	g.eventually("it is open", func() bool { _, err := g.create("ns", configMap("a")); return err == nil })
}

func TestLogsAreNotConnections(t *testing.T) {
	g, ctx := newGate(t), context.Background()
	g.must(g.CoreV1().Pods("ns").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{}))
	hook := newRemote(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{}
	})
	g.register("x", []regv1.ValidatingWebhook{validating(hook, func(w *regv1.ValidatingWebhook) { w.Rules[0].Resources = []string{"pods/log"} })})
	var code int
	g.CoreV1().RESTClient().Get().Namespace("ns").Resource("pods").Name("p").SubResource("log").Do(ctx).StatusCode(&code)
	if n := len(hook.calls()); n != 0 || code == http.StatusForbidden {
		t.Errorf("%d calls, code %d", n, code)
	}
}
