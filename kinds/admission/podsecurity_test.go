package admission_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

const securityFile = `- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, audit: restricted, warn: restricted}
    exemptions: {namespaces: [free], usernames: [root], runtimeClasses: [vm]}
`

func hostNetwork(namespace string) *corev1.Pod {
	p := pod("p", corev1.PodSpec{HostNetwork: true, ServiceAccountName: "default"})
	p.Namespace = namespace
	return p
}

func TestSecurityByConfiguration(t *testing.T) {
	by := func(who string, r *kind.AdmissionRequest) *kind.AdmissionRequest {
		r.User = &user.DefaultInfo{Name: who}
		return r
	}
	vm := hostNetwork("ns")
	vm.Spec.RuntimeClassName = ptr.To("vm")
	deployment := &appsv1.Deployment{ObjectMeta: meta("ns", "d"), Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: hostNetwork("ns").Spec}}}
	const note = "pod-security.kubernetes.io/"
	for name, c := range map[string]struct {
		request *kind.AdmissionRequest
		want    string
		notes   map[string]string // by the beginnings of their values
		warns   bool
	}{
		"violates the default": {create("pods", "", hostNetwork("ns")), `violates PodSecurity "baseline:latest": host namespaces`,
			map[string]string{note + "enforce-policy": "baseline:latest", note + "audit-violations": `would violate PodSecurity "restricted:latest": host namespaces`}, false},
		"violates what is warned of": {create("pods", "", pod("p", corev1.PodSpec{ServiceAccountName: "default"})), "",
			map[string]string{note + "enforce-policy": "baseline:latest", note + "audit-violations": `would violate PodSecurity "restricted:latest": allowPrivilegeEscalation`}, true},
		"template":             {create("deployments", "apps", deployment), "", map[string]string{note + "audit-violations": `would violate PodSecurity "restricted:latest": host namespaces`}, true},
		"exempt namespace":     {create("pods", "", hostNetwork("free")), "", map[string]string{note + "exempt": "namespace"}, false},
		"exempt user":          {by("root", create("pods", "", hostNetwork("ns"))), "", map[string]string{note + "exempt": "user"}, false},
		"exempt runtime class": {create("pods", "", vm), "", map[string]string{note + "exempt": "runtimeClass"}, false},
		"labels go before":     {create("pods", "", hostNetwork("open")), "", map[string]string{note + "enforce-policy": "privileged:latest"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := with(t, securityFile)
			for _, ns := range []string{"free", "open"} {
				n := &corev1.Namespace{ObjectMeta: meta("", ns)}
				if ns == "open" {
					n.Labels = map[string]string{}
					for _, mode := range []string{"enforce", "audit", "warn"} {
						n.Labels["pod-security.kubernetes.io/"+mode] = "privileged"
					}
				}
				g.env.Put("", "namespaces", n)
				g.env.Put("", "serviceaccounts", &corev1.ServiceAccount{ObjectMeta: meta(ns, "default")})
			}
			g.env.Put("node.k8s.io", "runtimeclasses", &nodev1.RuntimeClass{ObjectMeta: meta("", "vm")})
			refused(t, g.admit(c.request), c.want)
			got := map[string]string{}
			for key, value := range g.notes {
				if want, ok := c.notes[key]; ok && strings.HasPrefix(value, want) {
					value = want
				}
				got[key] = value
			}
			if d := cmp.Diff(c.notes, got); d != "" || (len(g.warnings) > 0) != c.warns {
				t.Errorf("%s warnings %q", d, g.warnings)
			}
		})
	}
}

func TestOldPodsGoOnUnderAStricterLevel(t *testing.T) {
	g := with(t, securityFile)
	old := hostNetwork("ns")
	old.Spec.Containers[0].Image = "a"
	patience, other, more := old.DeepCopy(), old.DeepCopy(), old.DeepCopy()
	patience.Spec.ActiveDeadlineSeconds = ptr.To[int64](9)
	other.Spec.Containers[0].Image = "b"
	more.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "a"}}}
	for name, c := range map[string]struct {
		request *kind.AdmissionRequest
		want    string
	}{
		"deadline":            {update("pods", "", "", patience, old), ""},
		"resize":              {update("pods", "", "resize", old, old), ""},
		"status":              {update("pods", "", "status", other, old), ""},
		"image":               {update("pods", "", "", other, old), "violates PodSecurity"},
		"ephemeral container": {update("pods", "", "ephemeralcontainers", more, old), "violates PodSecurity"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, g.admit(c.request), c.want) })
	}
}

func TestStricterNamespaces(t *testing.T) {
	labelled := func(name string, pairs ...string) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: meta("", name)}
		ns.Labels = map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			ns.Labels["pod-security.kubernetes.io/"+pairs[i]] = pairs[i+1]
		}
		return ns
	}
	g := with(t, "")
	owned := func(name string) *corev1.Pod {
		p := hostNetwork("ns")
		p.Name = name
		p.OwnerReferences = []metav1.OwnerReference{{UID: "rs", Controller: ptr.To(true)}}
		return p
	}
	for _, name := range []string{"c", "a", "b"} {
		g.env.Put("", "pods", owned(name))
	}
	innocent := pod("z", corev1.PodSpec{})
	g.env.Put("", "pods", innocent)
	for name, c := range map[string]struct {
		request *kind.AdmissionRequest
		refusal string
		warns   []string
	}{
		"stricter":           {update("namespaces", "", "", labelled("ns", "enforce", "baseline"), labelled("ns")), "", []string{`existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest"`, "a (and 2 other pods): host namespaces"}},
		"looser":             {update("namespaces", "", "", labelled("ns", "enforce", "baseline"), labelled("ns", "enforce", "restricted")), "", nil},
		"other mode":         {update("namespaces", "", "", labelled("ns", "warn", "baseline"), labelled("ns")), "", nil},
		"new":                {create("namespaces", "", labelled("ns", "enforce", "baseline")), "", nil},
		"no level":           {create("namespaces", "", labelled("x", "enforce", "paranoid")), `Invalid value: "paranoid"`, nil},
		"no level as before": {update("namespaces", "", "", labelled("x", "enforce", "paranoid"), labelled("x", "enforce", "paranoid")), "", nil},
		"no level now":       {update("namespaces", "", "", labelled("x", "enforce", "paranoid"), labelled("x")), `Invalid value: "paranoid"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, g.admit(c.request), c.refusal)
			if d := cmp.Diff(c.warns, g.warnings); d != "" {
				t.Error(d)
			}
		})
	}
	exempt := with(t, securityFile)
	refused(t, exempt.admit(create("namespaces", "", labelled("free", "enforce", "restricted", "warn", "restricted"))), "")
	if d := cmp.Diff([]string{`namespace "free" is exempt from Pod Security, and the policy (enforce=restricted:latest, warn=restricted:latest) will be ignored`}, exempt.warnings); d != "" {
		t.Error(d)
	}
}
