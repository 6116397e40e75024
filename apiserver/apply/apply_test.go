package apply_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/yare-project/yare/apiserver/apply"
	"github.com/yare-project/yare/kind"
)

func scheme(t testing.TB) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var (
	core        = kind.Group{Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{corev1.AddToScheme}}
	pods        = kind.Add(&core, kind.Def[corev1.Pod]{Names: kind.Names{Plural: "pods"}})
	nodes       = kind.Add(&core, kind.Def[corev1.Node]{Names: kind.Names{Plural: "nodes"}, Scope: kind.Cluster})
	endpoints   = kind.Add(&core, kind.Def[corev1.Endpoints]{Names: kind.Names{Plural: "endpoints"}})
	configMaps  = kind.Add(&core, kind.Def[corev1.ConfigMap]{Names: kind.Names{Plural: "configmaps"}})
	services    = kind.Add(&core, kind.Def[corev1.Service]{Names: kind.Names{Plural: "services"}})
	apps        = kind.Group{Name: "apps", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{appsv1.AddToScheme}}
	deployments = kind.Add(&apps, kind.Def[appsv1.Deployment]{Names: kind.Names{Plural: "deployments"}})
	registry    = kind.Group{Name: "apiregistration.k8s.io", Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{apiregistrationv1.AddToScheme}}
	apis        = kind.Add(&registry, kind.Def[apiregistrationv1.APIService]{Names: kind.Names{Plural: "apiservices"}, Scope: kind.Cluster})
)

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1", Labels: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: "TCP"}},
			Env: []corev1.EnvVar{{Name: "A", Value: "1"}}, LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}}}}},
			Tolerations: []corev1.Toleration{{Key: "x"}, {Key: "x"}}}}
	if change != nil {
		change(p)
	}
	return p
}

// entries shows who owns what, without the times.
func entries(o kind.Object) []string {
	var out []string
	for _, m := range o.GetManagedFields() {
		out = append(out, fmt.Sprintf("%s %s %s %s %s", m.Manager, m.Operation, m.APIVersion, m.Subresource, m.FieldsV1))
	}
	return out
}

// Objects that are read where they lie must give the same owners as those that are validated and converted first, which is what Kubernetes does.
func TestOwnersAreThoseOfKubernetes(t *testing.T) {
	s := scheme(t)
	ours, theirs := apply.For(pods, apply.NewTypes(s)), apply.For(pods, managedfields.TypeConverter(applyconfigurations.NewTypeConverter(s)))
	v := &pods.Versions[0]
	run := func(m *apply.Managers) []string {
		var out []string
		empty := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		live := kind.Object(empty)
		for i, step := range []struct {
			manager, sub string
			change       func(*corev1.Pod)
		}{
			{"kubectl", "", nil},
			{"kubelet", "status", func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: "True"}}
			}},
			{"sidecar", "", func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodRunning
				p.Spec.Containers = append([]corev1.Container{{Name: "side", Image: "s"}}, p.Spec.Containers...)
			}},
			{"kubectl", "", func(p *corev1.Pod) { p.Labels, p.Spec.Containers[0].Env, p.Spec.Tolerations = nil, nil, nil }},
			{"kubectl", "", func(p *corev1.Pod) { p.Labels, p.Spec.Containers[0].Env, p.Spec.Tolerations = nil, nil, nil }},
		} {
			next := pod(step.change)
			next.ManagedFields = live.GetManagedFields()
			got, err := m.Update(live, next, v, step.sub, step.manager)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprint(i))
			out = append(out, entries(got)...)
			live = got
		}
		return out
	}
	want, got := run(theirs), run(ours)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("owners differ:\n%s", d)
	}
	if all := strings.Join(got, "\n"); !strings.Contains(all, "kubelet Update v1 status") || !strings.Contains(all, `k:{\"name\":\"side\"}`) {
		t.Fatalf("owners:\n%s", all)
	}
}

func TestApplyLeavesTheLiveObjectAlone(t *testing.T) {
	m := apply.For(services, apply.NewTypes(scheme(t)))
	v := &services.Versions[0]
	live := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: "TCP"}}}}
	before := live.DeepCopy()
	config := config("v1", "Service", map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": int64(81), "protocol": "TCP"}}}})
	out, err := m.Apply(live, config, v, "", "me", false)
	if err != nil {
		t.Fatal(err)
	}
	if got := out.(*corev1.Service).Spec.Ports; len(got) != 2 {
		t.Fatalf("ports %+v", got)
	}
	if d := cmp.Diff(before, live); d != "" {
		t.Fatalf("the live object was changed:\n%s", d)
	}
}

// A type that client-go has no apply schema for is owned all the same.
func TestTypeWithoutSchema(t *testing.T) {
	m := apply.For(apis, apply.NewTypes(scheme(t)))
	v := &apis.Versions[0]
	typeMeta := metav1.TypeMeta{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"}
	obj := &apiregistrationv1.APIService{TypeMeta: typeMeta, ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID("1")}, Spec: apiregistrationv1.APIServiceSpec{Group: "g", VersionPriority: 5}}
	out, err := m.Update(&apiregistrationv1.APIService{TypeMeta: typeMeta}, obj, v, "", "me")
	if err != nil || len(out.GetManagedFields()) != 1 || !strings.Contains(out.GetManagedFields()[0].FieldsV1.String(), "f:versionPriority") {
		t.Fatal(entries(out), err)
	}
	_, err = m.Apply(out, config(typeMeta.APIVersion, typeMeta.Kind, map[string]any{"spec": map[string]any{"versionPriority": int64(6)}}), v, "", "you", false)
	if err == nil || !strings.Contains(err.Error(), ".spec.versionPriority") {
		t.Fatalf("no conflict: %v", err)
	}
}

func config(apiVersion, kind string, rest map[string]any) *unstructured.Unstructured {
	rest["apiVersion"], rest["kind"] = apiVersion, kind
	return &unstructured.Unstructured{Object: rest}
}
