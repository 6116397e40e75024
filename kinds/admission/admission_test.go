package admission_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/admission"
	"github.com/yare-project/yare/kinds/fake"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// world is a cluster with namespaces ns and dying, and the default service account in ns.
func world() *fake.Env {
	env := &fake.Env{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Who: &user.DefaultInfo{Name: "ann"}}
	env.Put("", "namespaces", &corev1.Namespace{ObjectMeta: meta("", "ns")})
	env.Put("", "namespaces", &corev1.Namespace{ObjectMeta: meta("", "dying"), Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}})
	env.Put("", "serviceaccounts", &corev1.ServiceAccount{ObjectMeta: meta("ns", "default")})
	return env
}

func ref(group, version, plural, namespace, name, sub string) resource.Ref {
	return resource.Ref{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, Namespace: namespace, Name: name, Subresource: sub}
}

func create(plural, group string, obj kind.Object) *kind.AdmissionRequest {
	return &kind.AdmissionRequest{Operation: admissionv1.Create, User: &user.DefaultInfo{Name: "ann"}, Object: obj, Ref: ref(group, "v1", plural, obj.GetNamespace(), obj.GetName(), "")}
}

func update(plural, group, sub string, obj, old kind.Object) *kind.AdmissionRequest {
	r := create(plural, group, obj)
	r.Operation, r.Old, r.Ref.Subresource = admissionv1.Update, old, sub
	return r
}

// admit runs the plugins as the API server does, and returns what they warn of.
func admit(env kind.Env, r *kind.AdmissionRequest) ([]string, error) {
	var warnings []string
	r.Warn = func(text string) { warnings = append(warnings, text) }
	mutators, validators := admission.New(admission.Config{Clock: clock.RealClock{}})
	for _, m := range mutators {
		if err := m.Mutate(context.Background(), env, r); err != nil {
			return warnings, err
		}
	}
	for _, v := range validators {
		if err := v.Validate(context.Background(), env, r); err != nil {
			return warnings, err
		}
	}
	return warnings, nil
}

// refused checks that an error is a refusal with these words; no words: that there is none.
func refused(t *testing.T, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("refused: %v", err)
	case words != "" && (err == nil || !strings.Contains(err.Error(), words)):
		t.Errorf("got %v, want %q", err, words)
	case words != "" && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		t.Errorf("%v is no API error", err)
	}
}

func pod(name string, spec corev1.PodSpec) *corev1.Pod {
	if spec.Containers == nil {
		spec.Containers = []corev1.Container{{Name: "c"}}
	}
	return &corev1.Pod{ObjectMeta: meta("ns", name), Spec: spec}
}

func TestNamespaceLifecycle(t *testing.T) {
	cm := func(namespace string) *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: meta(namespace, "c")} }
	remove := func(plural, namespace, name string) *kind.AdmissionRequest {
		return &kind.AdmissionRequest{Operation: admissionv1.Delete, User: &user.DefaultInfo{Name: "ann"}, Ref: ref("", "v1", plural, namespace, name, "")}
	}
	for name, test := range map[string]struct {
		request *kind.AdmissionRequest
		want    string
	}{
		"create":                       {create("configmaps", "", cm("ns")), ""},
		"create in nowhere":            {create("configmaps", "", cm("nowhere")), `namespaces "nowhere" not found`},
		"update in nowhere":            {update("configmaps", "", "", cm("nowhere"), cm("nowhere")), `namespaces "nowhere" not found`},
		"create in the dying":          {create("configmaps", "", cm("dying")), `configmaps "c" is forbidden: unable to create new content in namespace dying because it is being terminated`},
		"update in the dying":          {update("configmaps", "", "", cm("dying"), cm("dying")), ""},
		"delete in the dying":          {remove("configmaps", "dying", "c"), ""},
		"create a namespace":           {create("namespaces", "", &corev1.Namespace{ObjectMeta: meta("", "new")}), ""},
		"delete a namespace":           {remove("namespaces", "", "ns"), ""},
		"delete default":               {remove("namespaces", "", "default"), "this namespace may not be deleted"},
		"delete kube-system":           {remove("namespaces", "", "kube-system"), "this namespace may not be deleted"},
		"delete kube-public":           {remove("namespaces", "", "kube-public"), "this namespace may not be deleted"},
		"config map called default":    {remove("configmaps", "ns", "default"), ""},
		"cluster-scoped":               {create("nodes", "", &corev1.Node{ObjectMeta: meta("", "n")}), ""},
		"ask about a coming namespace": {&kind.AdmissionRequest{Operation: admissionv1.Create, User: &user.DefaultInfo{}, Ref: ref("authorization.k8s.io", "v1", "localsubjectaccessreviews", "nowhere", "", "")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := admit(world(), test.request)
			refused(t, err, test.want)
		})
	}
	_, err := admit(world(), create("configmaps", "", cm("dying")))
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("no cause by which a controller would know: %v", err)
	}
}

func TestServiceAccountMountsAToken(t *testing.T) {
	p := pod("p", corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i"}},
		Containers:     []corev1.Container{{Name: "c"}, {Name: "own", VolumeMounts: []corev1.VolumeMount{{Name: "own", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}}},
		Volumes:        []corev1.Volume{{Name: "own"}},
	})
	if _, err := admit(world(), create("pods", "", p)); err != nil {
		t.Fatal(err)
	}
	mount := corev1.VolumeMount{Name: "kube-api-access-s6vf8", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}
	want := corev1.Volume{Name: "kube-api-access-s6vf8", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o644), Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3607)}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}}}}
	got := []any{p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount, p.Spec.InitContainers[0].VolumeMounts, p.Spec.Containers[0].VolumeMounts, len(p.Spec.Containers[1].VolumeMounts), p.Spec.Volumes[1:]}
	if d := cmp.Diff([]any{"default", "default", []corev1.VolumeMount{mount}, []corev1.VolumeMount{mount}, 1, []corev1.Volume{want}}, got); d != "" {
		t.Error(d)
	}
	before := p.DeepCopy()
	if _, err := admit(world(), create("pods", "", p)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, p); d != "" {
		t.Errorf("a second pass changed the pod: %s", d)
	}
}

func TestServiceAccountWishes(t *testing.T) {
	no, yes := ptr.To(false), ptr.To(true)
	for name, test := range map[string]struct {
		account, pod *bool
		mounted      bool
	}{
		"nobody says": {nil, nil, true}, "account says no": {no, nil, false}, "pod says no": {yes, no, false}, "pod says yes": {no, yes, true},
	} {
		env := world()
		env.Put("", "serviceaccounts", &corev1.ServiceAccount{ObjectMeta: meta("ns", "default"), AutomountServiceAccountToken: test.account, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}})
		p := pod("p", corev1.PodSpec{AutomountServiceAccountToken: test.pod})
		if _, err := admit(env, create("pods", "", p)); err != nil {
			t.Fatal(err)
		}
		if got := len(p.Spec.Volumes) > 0; got != test.mounted {
			t.Errorf("%s: mounted=%v", name, got)
		}
		if d := cmp.Diff([]corev1.LocalObjectReference{{Name: "registry"}}, p.Spec.ImagePullSecrets); d != "" {
			t.Error(d)
		}
	}
}

func TestServiceAccountRefusals(t *testing.T) {
	strict := &corev1.ServiceAccount{ObjectMeta: meta("ns", "strict"), Secrets: []corev1.ObjectReference{{Name: "mine"}}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}}
	strict.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
	secretVolume := func(name string) []corev1.Volume {
		return []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
	}
	mirror := func(spec corev1.PodSpec) *corev1.Pod {
		p := pod("m", spec)
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		return p
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"missing account":    {pod("p", corev1.PodSpec{ServiceAccountName: "none"}), `pods "p" is forbidden: error looking up service account ns/none: serviceaccount "none" not found`},
		"named secret":       {pod("p", corev1.PodSpec{ServiceAccountName: "strict", Volumes: secretVolume("mine")}), ""},
		"unnamed secret":     {pod("p", corev1.PodSpec{ServiceAccountName: "strict", Volumes: secretVolume("other")}), `volume with secret.secretName="other" is not allowed because service account strict`},
		"unnamed in env":     {pod("p", corev1.PodSpec{ServiceAccountName: "strict", Containers: []corev1.Container{{Name: "c", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "other"}}}}}}}), "container c with envFrom"},
		"unnamed registry":   {pod("p", corev1.PodSpec{ServiceAccountName: "strict", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "other"}}}), "imagePullSecrets[0]"},
		"mirror":             {mirror(corev1.PodSpec{}), ""},
		"mirror of account":  {mirror(corev1.PodSpec{ServiceAccountName: "default"}), "a mirror pod may not reference service accounts"},
		"mirror with secret": {mirror(corev1.PodSpec{Volumes: secretVolume("s")}), "a mirror pod may not reference secrets"},
		"mirror with token":  {mirror(corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}}}}), "a mirror pod may not use ServiceAccountToken"},
	} {
		t.Run(name, func(t *testing.T) {
			env := world()
			env.Put("", "serviceaccounts", strict)
			_, err := admit(env, create("pods", "", test.pod))
			refused(t, err, test.want)
		})
	}
}

// late makes the default service account only when it was asked for a few times.
type late struct {
	*fake.Env
	left int
}

func (l *late) Get(ctx context.Context, r schema.GroupResource, namespace, name string) (kind.Object, error) {
	if r.Resource == "serviceaccounts" {
		if l.left--; l.left > 0 {
			return nil, apierrors.NewNotFound(r, name)
		}
	}
	return l.Env.Get(ctx, r, namespace, name)
}

func TestAPodMayComeBeforeItsNamespacesAccount(t *testing.T) {
	_, err := admit(&late{world(), 4}, create("pods", "", pod("p", corev1.PodSpec{})))
	refused(t, err, "")
}

func TestDefaultTolerations(t *testing.T) {
	forever := corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}
	p := pod("p", corev1.PodSpec{Tolerations: []corev1.Toleration{forever}})
	if _, err := admit(world(), create("pods", "", p)); err != nil {
		t.Fatal(err)
	}
	want := []corev1.Toleration{forever, {Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}}
	if d := cmp.Diff(want, p.Spec.Tolerations); d != "" {
		t.Error(d)
	}
	everything := pod("q", corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}})
	if _, err := admit(world(), create("pods", "", everything)); err != nil || len(everything.Spec.Tolerations) != 1 {
		t.Error(err, everything.Spec.Tolerations)
	}
}

func TestPriority(t *testing.T) {
	never := corev1.PreemptNever
	class := func(name string, value int32, global bool) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: meta("", name), Value: value, GlobalDefault: global, PreemptionPolicy: &never}
	}
	for name, test := range map[string]struct {
		spec    corev1.PodSpec
		classes []*schedulingv1.PriorityClass
		value   int32
		class   string
		want    string
	}{
		"none":                {corev1.PodSpec{}, nil, 0, "", ""},
		"named":               {corev1.PodSpec{PriorityClassName: "high"}, []*schedulingv1.PriorityClass{class("high", 7, false)}, 7, "high", ""},
		"default":             {corev1.PodSpec{}, []*schedulingv1.PriorityClass{class("high", 7, false), class("d", 3, true)}, 3, "d", ""},
		"missing":             {corev1.PodSpec{PriorityClassName: "high"}, nil, 0, "", "no PriorityClass with name high was found"},
		"number of one's own": {corev1.PodSpec{Priority: ptr.To[int32](9)}, nil, 0, "", "the integer value of priority (9) must not be provided in pod spec"},
		"same number":         {corev1.PodSpec{PriorityClassName: "high", Priority: ptr.To[int32](7)}, []*schedulingv1.PriorityClass{class("high", 7, false)}, 7, "high", ""},
		"other preemption":    {corev1.PodSpec{PriorityClassName: "high", PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}, []*schedulingv1.PriorityClass{class("high", 7, false)}, 0, "", "the string value of PreemptionPolicy (PreemptLowerPriority)"},
	} {
		t.Run(name, func(t *testing.T) {
			env := world()
			for _, c := range test.classes {
				env.Put(schedulingv1.GroupName, "priorityclasses", c)
			}
			p := pod("p", test.spec)
			_, err := admit(env, create("pods", "", p))
			refused(t, err, test.want)
			if err == nil && (*p.Spec.Priority != test.value || p.Spec.PriorityClassName != test.class || p.Spec.PreemptionPolicy == nil) {
				t.Errorf("%v %q %v", *p.Spec.Priority, p.Spec.PriorityClassName, p.Spec.PreemptionPolicy)
			}
		})
	}
	env := world()
	env.Put(schedulingv1.GroupName, "priorityclasses", class("d", 3, true))
	_, err := admit(env, create("priorityclasses", schedulingv1.GroupName, class("e", 4, true)))
	refused(t, err, "PriorityClass d is already marked as default")
	_, err = admit(env, update("priorityclasses", schedulingv1.GroupName, "", class("d", 3, true), class("d", 3, true)))
	refused(t, err, "")
	old := pod("p", corev1.PodSpec{Priority: ptr.To[int32](5), PreemptionPolicy: &never, ServiceAccountName: "default"})
	now := pod("p", corev1.PodSpec{ServiceAccountName: "default"})
	if _, err := admit(env, update("pods", "", "", now, old)); err != nil || *now.Spec.Priority != 5 || *now.Spec.PreemptionPolicy != never {
		t.Errorf("%v %v", err, now.Spec)
	}
}

func TestDefaultClasses(t *testing.T) {
	env := world()
	at := func(name string, minute int, annotation string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(env.Time.Add(time.Duration(minute) * time.Minute)), Annotations: map[string]string{annotation: "true"}}
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "c")}
	if _, err := admit(env, create("persistentvolumeclaims", "", claim)); err != nil || claim.Spec.StorageClassName != nil {
		t.Errorf("without a default class: %v %v", err, claim.Spec.StorageClassName)
	}
	env.Put(storagev1.GroupName, "storageclasses", &storagev1.StorageClass{ObjectMeta: at("old", 1, "storageclass.kubernetes.io/is-default-class")})
	env.Put(storagev1.GroupName, "storageclasses", &storagev1.StorageClass{ObjectMeta: at("new", 2, "storageclass.kubernetes.io/is-default-class")})
	env.Put(storagev1.GroupName, "storageclasses", &storagev1.StorageClass{ObjectMeta: at("newest", 3, "x")})
	if _, err := admit(env, create("persistentvolumeclaims", "", claim)); err != nil || ptr.Deref(claim.Spec.StorageClassName, "") != "new" {
		t.Errorf("%v %v", err, claim.Spec.StorageClassName)
	}
	none := &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "c"), Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("")}}
	if _, err := admit(env, create("persistentvolumeclaims", "", none)); err != nil || *none.Spec.StorageClassName != "" {
		t.Errorf("a claim that wants no class got %q (%v)", *none.Spec.StorageClassName, err)
	}
	env.Put(networkingv1.GroupName, "ingressclasses", &networkingv1.IngressClass{ObjectMeta: at("nginx", 1, networkingv1.AnnotationIsDefaultIngressClass)})
	for annotation, want := range map[string]string{"a": "nginx", "kubernetes.io/ingress.class": ""} {
		ingress := &networkingv1.Ingress{ObjectMeta: meta("ns", "i")}
		ingress.Annotations = map[string]string{annotation: "x"}
		if _, err := admit(env, create("ingresses", networkingv1.GroupName, ingress)); err != nil || ptr.Deref(ingress.Spec.IngressClassName, "") != want {
			t.Errorf("%s: %v %v", annotation, err, ingress.Spec.IngressClassName)
		}
	}
}

func TestRuntimeClass(t *testing.T) {
	cpu := corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("250m")}
	more := corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1")}
	class := &nodev1.RuntimeClass{ObjectMeta: meta("", "kata"), Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: cpu}, Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{"kata": "yes"}, Tolerations: []corev1.Toleration{{Key: "kata", Operator: corev1.TolerationOpExists}}}}
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"fills in":           {corev1.PodSpec{RuntimeClassName: ptr.To("kata")}, ""},
		"same overhead":      {corev1.PodSpec{RuntimeClassName: ptr.To("kata"), Overhead: cpu}, ""},
		"other overhead":     {corev1.PodSpec{RuntimeClassName: ptr.To("kata"), Overhead: more}, "Pod's Overhead doesn't match RuntimeClass's defined Overhead"},
		"overhead of no one": {corev1.PodSpec{Overhead: cpu}, "Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		"unknown class":      {corev1.PodSpec{RuntimeClassName: ptr.To("none")}, `pod rejected: RuntimeClass "none" not found`},
		"other selector":     {corev1.PodSpec{RuntimeClassName: ptr.To("kata"), NodeSelector: map[string]string{"kata": "no"}}, "conflict: runtimeClass.scheduling.nodeSelector[kata] = yes; pod.spec.nodeSelector[kata] = no"},
	} {
		t.Run(name, func(t *testing.T) {
			env := world()
			env.Put(nodev1.GroupName, "runtimeclasses", class)
			p := pod("p", test.spec)
			_, err := admit(env, create("pods", "", p))
			refused(t, err, test.want)
			if err == nil {
				got := []any{p.Spec.Overhead, p.Spec.NodeSelector, p.Spec.Tolerations[len(p.Spec.Tolerations)-1].Key}
				if d := cmp.Diff([]any{cpu, map[string]string{"kata": "yes"}, "kata"}, got); d != "" {
					t.Error(d)
				}
			}
		})
	}
	if len(class.Scheduling.NodeSelector) != 1 {
		t.Error("the class was changed")
	}
}

func TestANewNodeWaitsForItsConditions(t *testing.T) {
	n := &corev1.Node{ObjectMeta: meta("", "n")}
	for range 2 {
		if _, err := admit(world(), create("nodes", "", n)); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}}, n.Spec.Taints); d != "" {
		t.Error(d)
	}
}

func TestPodSecurity(t *testing.T) {
	env := world()
	level := func(name string, labels map[string]string) {
		ns := &corev1.Namespace{ObjectMeta: meta("", name)}
		ns.Labels = labels
		env.Put("", "namespaces", ns)
		env.Put("", "serviceaccounts", &corev1.ServiceAccount{ObjectMeta: meta(name, "default")})
	}
	level("strict", map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	level("base", map[string]string{"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"})
	privileged := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}}}
	restricted := corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "c", SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}
	plain := corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}
	for name, test := range map[string]struct {
		namespace string
		spec      corev1.PodSpec
		want      string
		warning   string
	}{
		"privileged where nothing is said": {"ns", privileged, "", ""},
		"privileged in baseline":           {"base", privileged, `violates PodSecurity "baseline:latest": privileged (container "c" must not set securityContext.privileged=true)`, ""},
		"plain in baseline":                {"base", plain, "", `would violate PodSecurity "restricted:latest"`},
		"plain in restricted":              {"strict", plain, `violates PodSecurity "restricted:latest"`, ""},
		"restricted in restricted":         {"strict", restricted, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("p", *test.spec.DeepCopy())
			p.Namespace = test.namespace
			warnings, err := admit(env, create("pods", "", p))
			refused(t, err, test.want)
			if got := strings.Join(warnings, "\n"); test.warning == "" && got != "" || !strings.Contains(got, test.warning) {
				t.Errorf("warnings %q", got)
			}
		})
	}
	d := &appsv1.Deployment{ObjectMeta: meta("base", "d"), Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: privileged}}}
	warnings, err := admit(env, create("deployments", "apps", d))
	refused(t, err, "")
	if len(warnings) != 1 {
		t.Errorf("a template that violates the level was not warned of: %v", warnings)
	}
	ns := &corev1.Namespace{ObjectMeta: meta("", "new")}
	ns.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "bogus"}
	_, err = admit(env, create("namespaces", "", ns))
	refused(t, err, "pod-security.kubernetes.io/enforce")
}

func TestLimitRanges(t *testing.T) {
	quantities := func(pairs ...string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[corev1.ResourceName(pairs[i])] = apiresource.MustParse(pairs[i+1])
		}
		return out
	}
	env := world()
	env.Put("", "limitranges", &corev1.LimitRange{ObjectMeta: meta("ns", "l"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Default: quantities("cpu", "500m", "memory", "64Mi"), DefaultRequest: quantities("cpu", "100m"), Min: quantities("cpu", "50m"), Max: quantities("cpu", "1"), MaxLimitRequestRatio: quantities("cpu", "5")},
		{Type: corev1.LimitTypePod, Max: quantities("cpu", "1500m")},
		{Type: corev1.LimitTypePersistentVolumeClaim, Min: quantities("storage", "1Gi"), Max: quantities("storage", "10Gi")},
	}}})
	with := func(requests, limits corev1.ResourceList, n int) *corev1.Pod {
		p := pod("p", corev1.PodSpec{})
		p.Spec.Containers = nil
		for range n {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}})
		}
		return p
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"nothing said":   {with(nil, nil, 1), ""},
		"request small":  {with(quantities("cpu", "10m"), quantities("cpu", "50m"), 1), "minimum cpu usage per Container is 50m, but request is 10m"},
		"limit big":      {with(quantities("cpu", "500m"), quantities("cpu", "1100m"), 1), "maximum cpu usage per Container is 1, but limit is 1100m"},
		"too far apart":  {with(quantities("cpu", "100m"), quantities("cpu", "600m"), 1), "cpu max limit to request ratio per Container is 5, but provided ratio is 6.000000"},
		"pod in all big": {with(quantities("cpu", "400m"), quantities("cpu", "800m"), 2), "maximum cpu usage per Pod is 1500m, but limit is 1600m"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := admit(env, create("pods", "", test.pod))
			refused(t, err, test.want)
		})
	}
	p := with(nil, nil, 1)
	if _, err := admit(env, create("pods", "", p)); err != nil {
		t.Fatal(err)
	}
	want := corev1.ResourceRequirements{Requests: quantities("cpu", "100m"), Limits: quantities("cpu", "500m", "memory", "64Mi")}
	if d := cmp.Diff(want, p.Spec.Containers[0].Resources); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff("LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c", p.Annotations["kubernetes.io/limit-ranger"]); d != "" {
		t.Error(d)
	}
	for size, refusal := range map[string]string{"5Gi": "", "1Mi": "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi", "11Gi": "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 11Gi"} {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "c"), Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", size)}}}
		_, err := admit(env, create("persistentvolumeclaims", "", c))
		refused(t, err, refusal)
	}
}
