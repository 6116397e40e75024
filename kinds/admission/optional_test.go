package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
	"github.com/yare-project/yare/kinds/admission"
	"github.com/yare-project/yare/kinds/fake"
)

// gate is a set of plugins at work.
type gate struct {
	t          *testing.T
	env        *fake.Env
	mutators   []kind.Mutator
	validators []kind.Validator
	warnings   []string
	notes      map[string]string
}

// with builds the default plugins and those that are named; file is the text of an AdmissionConfiguration's plugins, if any.
func with(t *testing.T, file string, enable ...string) *gate {
	t.Helper()
	cfg := admission.Config{Clock: testclock.NewFakeClock(time.Unix(1e9, 0)), Choice: admission.Choice{Enable: enable}}
	g := &gate{t: t, env: world()}
	cfg.Provision = func(_ context.Context, name string) error {
		g.env.Put("", "namespaces", &corev1.Namespace{ObjectMeta: meta("", name)})
		g.env.Put("", "serviceaccounts", &corev1.ServiceAccount{ObjectMeta: meta(name, "default")})
		return nil
	}
	cfg.Kinds = func() []*kind.Kind {
		var out []*kind.Kind
		for _, group := range kinds.Groups() {
			out = append(out, group.Kinds...)
		}
		return out
	}
	if file != "" {
		cfg.File = configuration(t, file)
	}
	var err error
	if g.mutators, g.validators, err = admission.Build(cfg); err != nil {
		t.Fatal(err)
	}
	return g
}

func configuration(t *testing.T, plugins string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+plugins), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (g *gate) admit(r *kind.AdmissionRequest) error {
	g.warnings, g.notes = nil, map[string]string{}
	r.Warn = func(text string) { g.warnings = append(g.warnings, text) }
	r.Annotate = func(key, value string) { g.notes[key] = value }
	for _, m := range g.mutators {
		if err := m.Mutate(context.Background(), g.env, r); err != nil {
			return err
		}
	}
	for _, v := range g.validators {
		if err := v.Validate(context.Background(), g.env, r); err != nil {
			return err
		}
	}
	return nil
}

func delete(plural, group, namespace, name string) *kind.AdmissionRequest {
	return &kind.AdmissionRequest{Operation: admissionv1.Delete, User: &user.DefaultInfo{Name: "ann"}, Ref: ref(group, "v1", plural, namespace, name, "")}
}

func TestNamesOfPlugins(t *testing.T) {
	for name, c := range map[string]struct {
		choice admission.Choice
		want   string
	}{
		"none":                  {admission.Choice{}, ""},
		"one on, one off":       {admission.Choice{Enable: []string{"AlwaysPullImages"}, Disable: []string{"LimitRanger"}}, ""},
		"of webhooks":           {admission.Choice{Enable: []string{"MutatingAdmissionWebhook", "ValidatingAdmissionPolicy"}, Disable: []string{"ValidatingAdmissionWebhook"}}, ""},
		"of an alpha feature":   {admission.Choice{Disable: []string{"ClusterTrustBundleAttest"}}, ""},
		"unknown":               {admission.Choice{Enable: []string{"PodPreset"}}, `--enable-admission-plugins: plugin "PodPreset" is unknown`},
		"unknown to disable":    {admission.Choice{Disable: []string{"nope"}}, `--disable-admission-plugins: plugin "nope" is unknown`},
		"both":                  {admission.Choice{Enable: []string{"LimitRanger"}, Disable: []string{"LimitRanger"}}, `"LimitRanger" is in --enable-admission-plugins and in --disable`},
		"the server's own part": {admission.Choice{Disable: []string{"RBACEscalation"}}, `"RBACEscalation" is unknown`},
	} {
		if err := c.choice.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	defaults := func(choice admission.Choice) string {
		mutators, validators, err := admission.Build(admission.Config{Choice: choice})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range mutators {
			names = append(names, m.Name())
		}
		for _, v := range validators {
			names = append(names, v.Name())
		}
		return strings.Join(names, " ")
	}
	all := defaults(admission.Choice{})
	for _, name := range []string{"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "TaintNodesByCondition", "PodSecurity", "Priority", "DefaultTolerationSeconds", "DefaultStorageClass",
		"StorageObjectInUseProtection", "PersistentVolumeClaimResize", "RuntimeClass", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "PodGroupWorkloadExists", "PodGroupProtection", "JobValidation", "DefaultIngressClass",
		"PodTopologyLabels", "PodResizeValidator", "ResourceQuota", "NodeRestriction"} {
		if !strings.Contains(all, name) {
			t.Errorf("%s does not run by default", name)
		}
		if strings.Contains(defaults(admission.Choice{Disable: []string{name}}), name) {
			t.Errorf("%s runs though it is switched off", name)
		}
	}
	if strings.Contains(all, "AlwaysPullImages") || !strings.HasSuffix(all, "RBACEscalation DRAAdminAccess DRAResourceClaimGranularStatusAuthorization ResourceQuota") {
		t.Errorf("order: %s", all)
	}
}

func TestConfigurationFiles(t *testing.T) {
	limits := "- name: EventRateLimit\n  configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [%s]}\n"
	for name, c := range map[string]struct{ plugins, want string }{
		"event limits":         {fmt.Sprintf(limits, "{type: Server, qps: 1, burst: 1}, {type: User, qps: 1, burst: 1, cacheSize: 9}"), ""},
		"no limits":            {fmt.Sprintf(limits, ""), "EventRateLimit: limits: must not be empty"},
		"unknown type":         {fmt.Sprintf(limits, "{type: Galaxy, qps: 1, burst: 1}"), `limits[0].type: "Galaxy" is not known`},
		"no burst":             {fmt.Sprintf(limits, "{type: User, qps: 1}"), "limits[0].burst: 0 must be positive"},
		"no rate":              {fmt.Sprintf(limits, "{type: User, burst: 1}"), "limits[0].qps: 0 must be positive"},
		"cache":                {fmt.Sprintf(limits, "{type: User, qps: 1, burst: 1, cacheSize: -1}"), "cacheSize: -1"},
		"unknown field":        {fmt.Sprintf(limits, "{type: User, qps: 1, burst: 1, colour: red}"), `unknown field "colour"`},
		"another kind":         {"- name: EventRateLimit\n  configuration: {apiVersion: v1, kind: Pod}\n", "it is v1 Pod, not a Configuration of eventratelimit"},
		"unknown plugin":       {"- name: PodPreset\n  configuration: {a: b}\n", `plugins[0].name: there is no plugin "PodPreset"`},
		"not configurable":     {"- name: LimitRanger\n  configuration: {a: b}\n", "plugins[0]: LimitRanger has nothing to be configured"},
		"named without":        {"- name: LimitRanger\n", ""},
		"twice":                {"- name: PodNodeSelector\n  configuration: {podNodeSelectorPluginConfig: {}}\n- name: PodNodeSelector\n", "PodNodeSelector is there twice"},
		"webhooks":             {"- name: ValidatingAdmissionWebhook\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: /etc/x}\n", ""},
		"webhooks, beside":     {"- name: MutatingAdmissionWebhook\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: x}\n", `kubeConfigFile: "x" must be an absolute path`},
		"missing file":         {"- name: PodNodeSelector\n  path: none.yaml\n", "none.yaml"},
		"selectors":            {"- name: PodNodeSelector\n  configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: 'a=b'}}\n", ""},
		"bad selector":         {"- name: PodNodeSelector\n  configuration: {podNodeSelectorPluginConfig: {ns: 'a in (b'}}\n", "podNodeSelectorPluginConfig[ns]"},
		"security":             {"- name: PodSecurity\n  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: baseline}}\n", ""},
		"security level":       {"- name: PodSecurity\n  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: paranoid}}\n", `"paranoid"`},
		"tolerations":          {"- name: PodTolerationRestriction\n  configuration: {apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{key: a}]}\n", ""},
		"quota":                {"- name: ResourceQuota\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{resource: pods, matchContains: [requests.cpu]}]}\n", ""},
		"quota of old":         {"- name: ResourceQuota\n  configuration: {apiVersion: resourcequota.admission.k8s.io/v1beta1, kind: Configuration, limitedResources: [{resource: pods}]}\n", ""},
		"quota without what":   {"- name: ResourceQuota\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{matchContains: [a]}]}\n", "limitedResources[0].resource"},
		"images without where": {"- name: ImagePolicyWebhook\n  configuration: {imagePolicy: {allowTTL: 5}}\n", "imagePolicy.kubeConfigFile"},
		"images out of bounds": {"- name: ImagePolicyWebhook\n  configuration: {imagePolicy: {kubeConfigFile: x, allowTTL: 99999}}\n", "imagePolicy.allowTTL: 99999"},
	} {
		_, _, err := admission.Build(admission.Config{File: configuration(t, c.plugins)})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "--admission-control-config-file")) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, name := range []string{"EventRateLimit", "ImagePolicyWebhook"} {
		if _, _, err := admission.Build(admission.Config{Choice: admission.Choice{Enable: []string{name}}}); err == nil || !strings.Contains(err.Error(), name+" needs a configuration") {
			t.Errorf("%s without a configuration: %v", name, err)
		}
	}
	if _, _, err := admission.Build(admission.Config{File: "/does/not/exist"}); err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("no file: %v", err)
	}
}

func TestOptionalNamespacePlugins(t *testing.T) {
	cm := func(namespace string) *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: meta(namespace, "c")} }
	dry := create("configmaps", "", cm("new"))
	dry.DryRun = true
	for name, c := range map[string]struct {
		plugin  string
		request *kind.AdmissionRequest
		want    string
	}{
		"made as needed":           {"NamespaceAutoProvision", create("configmaps", "", cm("new")), ""},
		"not by a dry run":         {"NamespaceAutoProvision", dry, `namespaces "new" not found`},
		"not by an update":         {"NamespaceAutoProvision", update("configmaps", "", "", cm("new"), cm("new")), `namespaces "new" not found`},
		"there already":            {"NamespaceAutoProvision", create("configmaps", "", cm("ns")), ""},
		"deletion where it exists": {"NamespaceExists", delete("configmaps", "", "ns", "c"), ""},
		"deletion in nowhere":      {"NamespaceExists", delete("configmaps", "", "nowhere", "c"), `namespaces "nowhere" not found`},
		"of the namespace itself":  {"NamespaceExists", create("namespaces", "", &corev1.Namespace{ObjectMeta: meta("", "x")}), ""},
		"denied":                   {"AlwaysDeny", create("configmaps", "", cm("ns")), "admission control is denying all modifications"},
		"allowed":                  {"AlwaysAdmit", create("configmaps", "", cm("ns")), ""},
	} {
		t.Run(name, func(t *testing.T) { refused(t, with(t, "", c.plugin).admit(c.request), c.want) })
	}
}

func TestExternalIPsAreDenied(t *testing.T) {
	service := func(ips ...string) *corev1.Service {
		return &corev1.Service{ObjectMeta: meta("ns", "s"), Spec: corev1.ServiceSpec{ExternalIPs: ips}}
	}
	const no = "Use of external IPs is denied by admission control"
	for name, c := range map[string]struct {
		request *kind.AdmissionRequest
		want    string
	}{
		"none":        {create("services", "", service()), ""},
		"new":         {create("services", "", service("192.0.2.1")), no},
		"kept":        {update("services", "", "", service("192.0.2.1"), service("192.0.2.1", "192.0.2.2")), ""},
		"added":       {update("services", "", "", service("192.0.2.1", "192.0.2.2"), service("192.0.2.1")), no},
		"taken away":  {update("services", "", "", service(), service("192.0.2.1")), ""},
		"in a status": {update("services", "", "status", service("192.0.2.1"), service()), ""},
	} {
		t.Run(name, func(t *testing.T) { refused(t, with(t, "", "DenyServiceExternalIPs").admit(c.request), c.want) })
	}
	refused(t, with(t, "").admit(create("services", "", service("192.0.2.1"))), "")
}

func TestImagesAreAlwaysPulled(t *testing.T) {
	g := with(t, "", "AlwaysPullImages")
	spec := corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i", Image: "a"}}, Containers: []corev1.Container{{Name: "c", Image: "b", ImagePullPolicy: corev1.PullNever}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "r", PullPolicy: corev1.PullIfNotPresent}}}}}
	p := pod("p", spec)
	if err := g.admit(create("pods", "", p)); err != nil {
		t.Fatal(err)
	}
	got := []corev1.PullPolicy{p.Spec.InitContainers[0].ImagePullPolicy, p.Spec.Containers[0].ImagePullPolicy, p.Spec.Volumes[0].Image.PullPolicy}
	if d := cmp.Diff([]corev1.PullPolicy{"Always", "Always", "Always"}, got); d != "" {
		t.Error(d)
	}
	old := pod("p", corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Image: "b", ImagePullPolicy: corev1.PullNever}}})
	same, other := old.DeepCopy(), old.DeepCopy()
	other.Spec.Containers[0].Image = "x"
	refused(t, g.admit(update("pods", "", "", same, old)), "")
	refused(t, g.admit(update("pods", "", "", other, old)), "")
	if same.Spec.Containers[0].ImagePullPolicy != corev1.PullNever || other.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways {
		t.Errorf("an update of the same image %s, of another %s", same.Spec.Containers[0].ImagePullPolicy, other.Spec.Containers[0].ImagePullPolicy)
	}
	// What a webhook turned back is refused.
	last := g.validators
	g.mutators = nil
	other.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
	refused(t, g.admit(update("pods", "", "", other, old)), `spec.containers[0].imagePullPolicy: Unsupported value: "Never"`)
	g.validators = last
}

func TestHardAntiAffinity(t *testing.T) {
	apart := func(key string) *corev1.Pod {
		return pod("p", corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key}}}}})
	}
	soft := pod("p", corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone"}}}}}})
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"none": {pod("p", corev1.PodSpec{}), ""}, "by node": {apart("kubernetes.io/hostname"), ""}, "preferred": {soft, ""},
		"by zone": {apart("topology.kubernetes.io/zone"), "TopologyKey topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, with(t, "", "LimitPodHardAntiAffinityTopology").admit(create("pods", "", c.pod)), c.want)
		})
	}
}

func quantities(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = apiresource.MustParse(pairs[i+1])
	}
	return out
}

func TestExtendedResourcesAreTolerated(t *testing.T) {
	ask := func(pairs ...string) corev1.Container {
		return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: quantities(pairs...)}}
	}
	p := pod("p", corev1.PodSpec{InitContainers: []corev1.Container{ask("b.com/fpga", "1")}, Containers: []corev1.Container{ask("cpu", "1", "a.com/gpu", "1", "kubernetes.io/batch", "1", "requests.c.com/x", "1")},
		Tolerations: []corev1.Toleration{{Key: "a.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule, TolerationSeconds: ptr.To[int64](3)}}})
	if err := with(t, "", "ExtendedResourceToleration").admit(create("pods", "", p)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range p.Spec.Tolerations {
		got = append(got, fmt.Sprint(c.Key, c.Operator, c.Effect, c.TolerationSeconds != nil))
	}
	want := []string{"a.com/gpuExistsNoSchedulefalse", "node.kubernetes.io/not-readyExistsNoExecutetrue", "node.kubernetes.io/unreachableExistsNoExecutetrue", "b.com/fpgaExistsNoSchedulefalse"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestNodeSelectorsOfNamespaces(t *testing.T) {
	selecting := func(pairs ...string) *corev1.Pod {
		p := pod("p", corev1.PodSpec{})
		for i := 0; i+1 < len(pairs); i += 2 {
			if p.Spec.NodeSelector == nil {
				p.Spec.NodeSelector = map[string]string{}
			}
			p.Spec.NodeSelector[pairs[i]] = pairs[i+1]
		}
		return p
	}
	const file = "- name: PodNodeSelector\n  configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: 'pool=any', ns: 'pool=red,pool2=x,disk=ssd'}}\n"
	for name, c := range map[string]struct {
		file, annotation string
		pod              *corev1.Pod
		want             string
		selector         map[string]string
	}{
		"nothing said":            {"", "", selecting("a", "b"), "", map[string]string{"a": "b"}},
		"by annotation":           {"", "pool=red", selecting("a", "b"), "", map[string]string{"a": "b", "pool": "red"}},
		"agreed":                  {"", "pool=red", selecting("pool", "red"), "", map[string]string{"pool": "red"}},
		"contradiction":           {"", "pool=red", selecting("pool", "blue"), "pod node label selector conflicts with its namespace node label selector", nil},
		"unreadable":              {"", "pool in (", selecting(), "the node selector of namespace ns cannot be read", nil},
		"cluster's default":       {file, "", selecting(), "conflict with its namespace whitelist", nil},
		"own goes before default": {file, "pool=red", selecting("disk", "ssd"), "", map[string]string{"pool": "red", "disk": "ssd"}},
		"not on the list":         {file, "pool=red", selecting("colour", "x"), "conflict with its namespace whitelist", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := with(t, c.file, "PodNodeSelector")
			if c.annotation != "" {
				ns := &corev1.Namespace{ObjectMeta: meta("", "ns")}
				ns.Annotations = map[string]string{"scheduler.alpha.kubernetes.io/node-selector": c.annotation}
				g.env.Put("", "namespaces", ns)
			}
			err := g.admit(create("pods", "", c.pod))
			refused(t, err, c.want)
			if err == nil {
				if d := cmp.Diff(c.selector, c.pod.Spec.NodeSelector); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestTolerationsOfNamespaces(t *testing.T) {
	tolerating := func(keys ...string) *corev1.Pod {
		p := pod("p", corev1.PodSpec{})
		for _, key := range keys {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpEqual, Value: "v", Effect: corev1.TaintEffectNoSchedule})
		}
		return p
	}
	burstable := tolerating()
	burstable.Spec.Containers[0].Resources.Requests = quantities("cpu", "1")
	// Those that DefaultTolerationSeconds adds are to be allowed, too.
	const usual = `{"key":"node.kubernetes.io/not-ready","operator":"Exists"},{"key":"node.kubernetes.io/unreachable","operator":"Exists"}`
	const file = "- name: PodTolerationRestriction\n  configuration: {apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{key: cluster, operator: Exists}], whitelist: [{key: cluster, operator: Exists}, " + usual + "]}\n"
	for name, c := range map[string]struct {
		file              string
		defaults, allowed *string
		pod               *corev1.Pod
		want              string
		keys              string
	}{
		"nothing said":              {"", nil, nil, tolerating("a"), "", "a"},
		"added":                     {"", ptr.To(`[{"key":"ns","operator":"Exists"}]`), nil, tolerating("a"), "", "a ns"},
		"already included":          {"", ptr.To(`[{"key":"a","operator":"Exists"}]`), nil, tolerating("a"), "", "a"},
		"memory pressure":           {"", nil, nil, burstable, "", "node.kubernetes.io/memory-pressure"},
		"allowed":                   {"", nil, ptr.To(`[{"key":"a","operator":"Exists"},` + usual + `]`), tolerating("a"), "", "a"},
		"not allowed":               {"", nil, ptr.To(`[{"key":"b","operator":"Exists"},` + usual + `]`), tolerating("a"), "conflict with its namespace whitelist", ""},
		"cluster's":                 {file, nil, nil, tolerating(), "", "cluster"},
		"not allowed by cluster":    {file, nil, nil, tolerating("a"), "conflict with its cluster whitelist", ""},
		"own none instead":          {file, ptr.To(""), nil, tolerating(), "", ""},
		"own list instead":          {file, nil, ptr.To(""), tolerating("a"), "", "a cluster"},
		"default that's unreadable": {"", ptr.To("{"), nil, tolerating(), "the annotation scheduler.alpha.kubernetes.io/defaultTolerations of namespace ns cannot be read", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := with(t, c.file, "PodTolerationRestriction")
			ns := &corev1.Namespace{ObjectMeta: meta("", "ns")}
			ns.Annotations = map[string]string{}
			for key, value := range map[string]*string{"defaultTolerations": c.defaults, "tolerationsWhitelist": c.allowed} {
				if value != nil {
					ns.Annotations["scheduler.alpha.kubernetes.io/"+key] = *value
				}
			}
			g.env.Put("", "namespaces", ns)
			err := g.admit(create("pods", "", c.pod))
			refused(t, err, c.want)
			var keys []string
			for _, x := range c.pod.Spec.Tolerations {
				if x.Key != "node.kubernetes.io/not-ready" && x.Key != "node.kubernetes.io/unreachable" {
					keys = append(keys, x.Key)
				}
			}
			if got := strings.Join(keys, " "); err == nil && got != c.keys {
				t.Errorf("tolerates %q, want %q", got, c.keys)
			}
		})
	}
}

func TestEventRates(t *testing.T) {
	event := func(namespace, who, object string) *kind.AdmissionRequest {
		r := create("events", "", &corev1.Event{ObjectMeta: meta(namespace, "e"), Source: corev1.EventSource{Component: "c"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: object}})
		r.User = &user.DefaultInfo{Name: who}
		return r
	}
	clock := testclock.NewFakeClock(time.Unix(1e9, 0))
	build := func(limits string) *gate {
		g := with(t, "")
		var err error
		g.mutators, g.validators, err = admission.Build(admission.Config{Clock: clock, Choice: admission.Choice{Enable: []string{"EventRateLimit"}},
			File: configuration(t, "- name: EventRateLimit\n  configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: ["+limits+"]}\n")})
		if err != nil {
			t.Fatal(err)
		}
		g.env.Put("", "namespaces", &corev1.Namespace{ObjectMeta: meta("", "other")})
		return g
	}
	for name, c := range map[string]struct {
		limits     string
		same, free *kind.AdmissionRequest // free is not counted with same
		want       string
	}{
		"server":    {"{type: Server, qps: 1, burst: 2}", event("ns", "ann", "p"), nil, "limit reached on type Server for key "},
		"namespace": {"{type: Namespace, qps: 1, burst: 2}", event("ns", "ann", "p"), event("other", "ann", "p"), "limit reached on type Namespace for key ns"},
		"user":      {"{type: User, qps: 1, burst: 2}", event("ns", "ann", "p"), event("ns", "bob", "p"), "limit reached on type User for key ann"},
		"object":    {"{type: SourceAndObject, qps: 1, burst: 2}", event("ns", "ann", "p"), event("ns", "ann", "q"), "limit reached on type SourceAndObject for key cPodp"},
		"two limits": {"{type: User, qps: 1, burst: 2}, {type: Namespace, qps: 1, burst: 2}", event("ns", "ann", "p"), event("other", "bob", "p"),
			"limit reached on type User for key ann; limit reached on type Namespace for key ns"},
	} {
		t.Run(name, func(t *testing.T) {
			g := build(c.limits)
			refused(t, g.admit(c.same), "")
			refused(t, g.admit(c.same), "")
			err := g.admit(c.same)
			refused(t, err, c.want)
			if !apierrors.IsTooManyRequests(err) {
				t.Errorf("%v is no 429", err)
			}
			if c.free != nil {
				refused(t, g.admit(c.free), "")
			}
			dry := *c.same
			dry.DryRun = true
			refused(t, g.admit(&dry), "")
			clock.Step(time.Second)
			refused(t, g.admit(c.same), "")
			refused(t, g.admit(c.same), c.want)
		})
	}
	forgetful := build("{type: User, qps: 1, burst: 1, cacheSize: 1}")
	for range 3 { // each user drives the other out of the cache
		refused(t, forgetful.admit(event("ns", "ann", "p")), "")
		refused(t, forgetful.admit(event("ns", "bob", "p")), "")
	}
	g := build("{type: Server, qps: 1, burst: 1}")
	for range 3 { // other objects are not counted
		refused(t, g.admit(create("configmaps", "", &corev1.ConfigMap{ObjectMeta: meta("ns", "c")})), "")
	}
}

func TestOwnersNeedPermission(t *testing.T) {
	owner := func(block bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "u", BlockOwnerDeletion: ptr.To(block)}
	}
	owned := func(refs ...metav1.OwnerReference) *corev1.ConfigMap {
		c := &corev1.ConfigMap{ObjectMeta: meta("ns", "c")}
		c.OwnerReferences = refs
		return c
	}
	odd := owner(true)
	odd.Kind = "Unheard"
	const noFinalizers, noDelete = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on", "cannot set an ownerRef on a resource you can't delete"
	for name, c := range map[string]struct {
		may     string // verb, group, resource, subresource and name that are allowed
		request *kind.AdmissionRequest
		want    string
	}{
		"no owners":                {"", create("configmaps", "", owned()), ""},
		"new with an owner":        {"", create("configmaps", "", owned(owner(false))), ""},
		"new and blocking":         {"", create("configmaps", "", owned(owner(true))), noFinalizers},
		"may set finalizers":       {"update apps replicasets finalizers rs", create("configmaps", "", owned(owner(true))), ""},
		"may set all finalizers":   {"update * * finalizers *", create("configmaps", "", owned(odd)), ""},
		"unknown kind":             {"", create("configmaps", "", owned(odd)), "cannot find RESTMapping for APIVersion apps/v1 Kind Unheard"},
		"unchanged":                {"", update("configmaps", "", "", owned(owner(true)), owned(owner(true))), ""},
		"given later":              {"", update("configmaps", "", "", owned(owner(false)), owned()), noDelete},
		"may delete":               {"delete  configmaps  c", update("configmaps", "", "", owned(owner(false)), owned()), ""},
		"taken away":               {"", update("configmaps", "", "", owned(), owned(owner(false))), noDelete},
		"may delete, now blocking": {"delete  configmaps  c", update("configmaps", "", "", owned(owner(true)), owned(owner(false))), noFinalizers},
		"no longer blocking":       {"delete  configmaps  c", update("configmaps", "", "", owned(owner(false)), owned(owner(true))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := with(t, "", "OwnerReferencesPermissionEnforcement")
			g.env.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if strings.Join([]string{a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetName()}, " ") == c.may {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			refused(t, g.admit(c.request), c.want)
		})
	}
}

func TestResizesFitTheNode(t *testing.T) {
	sized := func(node, cpu string, generation int64) *corev1.Pod {
		p := pod("p", corev1.PodSpec{NodeName: node, ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: quantities("cpu", cpu, "memory", cpu+"Gi")}}}})
		p.Generation = generation
		return p
	}
	resize := func(node, cpu string) *kind.AdmissionRequest {
		return update("pods", "", "resize", sized(node, cpu, 2), sized(node, "1", 1))
	}
	for name, c := range map[string]struct {
		request *kind.AdmissionRequest
		want    string
		cause   metav1.CauseType
	}{
		"fits":          {resize("linux", "4"), "", ""},
		"not bound yet": {resize("", "9"), "", ""},
		"unchanged":     {update("pods", "", "resize", sized("linux", "9", 1), sized("linux", "9", 1)), "", ""},
		"too large":     {resize("linux", "5"), "node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 4000; memory, requested: 5368709120, allocatable: 4294967296", "NodeCapacity"},
		"elsewhere":     {resize("windows", "1"), `pod resize is only supported on linux nodes, node "windows" is "windows"`, "UnsupportedPlatform"},
		"nowhere":       {resize("gone", "1"), `node "gone" not found`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := with(t, "")
			for _, os := range []string{"linux", "windows"} {
				node := &corev1.Node{ObjectMeta: meta("", os), Status: corev1.NodeStatus{Allocatable: quantities("cpu", "4", "memory", "4Gi")}}
				node.Labels = map[string]string{corev1.LabelOSStable: os}
				g.env.Put("", "nodes", node)
			}
			err := g.admit(c.request)
			refused(t, err, c.want)
			if c.cause != "" && !apierrors.HasStatusCause(err, c.cause) {
				t.Errorf("%v lacks the cause %s", err, c.cause)
			}
		})
	}
}

func TestDeclaredFeatures(t *testing.T) {
	sized := func(cpu string, generation int64) *corev1.Pod {
		p := pod("p", corev1.PodSpec{NodeName: "n", ServiceAccountName: "default", InitContainers: []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: quantities("cpu", cpu)}}}})
		p.Generation = generation
		return p
	}
	for name, c := range map[string]struct {
		declared []string
		request  *kind.AdmissionRequest
		want     string
	}{
		"needs nothing": {nil, update("pods", "", "resize", sized("1", 2), sized("1", 1)), ""},
		"declared":      {[]string{"InPlacePodVerticalScalingInitContainers"}, update("pods", "", "resize", sized("2", 2), sized("1", 1)), ""},
		"not declared":  {nil, update("pods", "", "resize", sized("2", 2), sized("1", 1)), `pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node "n"`},
		"not a change":  {nil, update("pods", "", "status", sized("2", 2), sized("1", 1)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := with(t, "", "NodeDeclaredFeatureValidator")
			node := &corev1.Node{ObjectMeta: meta("", "n"), Status: corev1.NodeStatus{DeclaredFeatures: c.declared, Allocatable: quantities("cpu", "4", "memory", "4Gi")}}
			g.env.Put("", "nodes", node)
			refused(t, g.admit(c.request), c.want)
		})
	}
}

func TestQuotaMustBeThere(t *testing.T) {
	const file = "- name: ResourceQuota\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [" +
		"{resource: persistentvolumeclaims, matchContains: [.storageclass.storage.k8s.io/requests.storage]}, {resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [vip]}]}]}\n"
	claim := func(class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "c"), Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class), Resources: corev1.VolumeResourceRequirements{Requests: quantities("storage", "1Gi")}}}
	}
	quotaOf := func(spec corev1.ResourceQuotaSpec) *corev1.ResourceQuota {
		q := &corev1.ResourceQuota{ObjectMeta: meta("ns", "q"), Spec: spec}
		q.UID = "q"
		q.Status.Hard, q.Status.Used = spec.Hard, corev1.ResourceList{}
		for n := range spec.Hard {
			q.Status.Used[n] = apiresource.MustParse("0")
		}
		return q
	}
	gold := quotaOf(corev1.ResourceQuotaSpec{Hard: quantities("gold.storageclass.storage.k8s.io/requests.storage", "9Gi")})
	vip := quotaOf(corev1.ResourceQuotaSpec{Hard: quantities("pods", "5"), ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"vip"}}}}})
	prioritized := func(class string) *corev1.Pod {
		p := pod("p", corev1.PodSpec{})
		p.Spec.PriorityClassName = class
		return p
	}
	for name, c := range map[string]struct {
		quota   *corev1.ResourceQuota
		request *kind.AdmissionRequest
		want    string
	}{
		"claim without":       {nil, create("persistentvolumeclaims", "", claim("gold")), "insufficient quota to consume: gold.storageclass.storage.k8s.io/requests.storage"},
		"claim with":          {gold, create("persistentvolumeclaims", "", claim("gold")), ""},
		"claim of another":    {gold, create("persistentvolumeclaims", "", claim("iron")), "insufficient quota to consume: iron.storageclass"},
		"nothing more":        {nil, update("persistentvolumeclaims", "", "", claim("gold"), claim("gold")), ""},
		"priority without":    {nil, create("pods", "", prioritized("vip")), "insufficient quota to match these scopes: [{PriorityClass In [vip]}]"},
		"priority with":       {vip, create("pods", "", prioritized("vip")), ""},
		"no priority":         {nil, create("pods", "", prioritized("")), ""},
		"what is not limited": {nil, create("configmaps", "", &corev1.ConfigMap{ObjectMeta: meta("ns", "c")}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := with(t, file)
			g.mutators = nil // of which Priority would look for the class
			if p, ok := c.request.Object.(*corev1.Pod); ok {
				p.Spec.ServiceAccountName = "default"
			}
			if c.quota != nil {
				g.env.Put("", "resourcequotas", c.quota.DeepCopy())
			}
			refused(t, g.admit(c.request), c.want)
		})
	}
}

// images is an image policy webhook that likes what is called "good".
func images(t *testing.T, calls *int, code *int) string {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*calls++
		var review imagepolicyv1alpha1.ImageReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || *code != 0 {
			w.WriteHeader(max(*code, 400))
			return
		}
		review.Status.Allowed = true
		for _, c := range review.Spec.Containers {
			review.Status.Allowed = review.Status.Allowed && strings.HasPrefix(c.Image, "good")
		}
		if !review.Status.Allowed {
			review.Status.Reason = "bad taste in " + review.Spec.Namespace
		}
		review.Status.AuditAnnotations = map[string]string{"seen": review.Spec.Annotations["my.image-policy.k8s.io/ticket"]}
		_ = json.NewEncoder(w).Encode(&review)
	}))
	t.Cleanup(srv.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {insecure-skip-tls-verify: true, server: '" + srv.URL + "'}}]\ncontexts: [{name: c, context: {cluster: a}}]\ncurrent-context: c\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestImagePolicies(t *testing.T) {
	calls, code := 0, 0
	kubeconfig := images(t, &calls, &code)
	file := func(more string) string {
		return "- name: ImagePolicyWebhook\n  configuration: {imagePolicy: {kubeConfigFile: '" + kubeconfig + "', retryBackoff: 1" + more + "}}\n"
	}
	running := func(image string) *kind.AdmissionRequest {
		p := pod("p", corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}})
		p.Annotations = map[string]string{"my.image-policy.k8s.io/ticket": "7", "other": "x"}
		return create("pods", "", p)
	}
	g := with(t, file(""), "ImagePolicyWebhook")
	refused(t, g.admit(running("good/one")), "")
	if g.notes["imagepolicywebhook.image-policy.k8s.io/seen"] != "7" {
		t.Errorf("notes %v", g.notes)
	}
	refused(t, g.admit(running("good/one")), "")
	if calls != 1 {
		t.Errorf("the same question was asked %d times", calls)
	}
	refused(t, g.admit(running("bad/one")), "image policy webhook backend denied one or more images: bad taste in ns")
	code = 500
	calls = 0
	refused(t, g.admit(running("good/two")), "the image policy webhook answered 500")
	if calls != 5 {
		t.Errorf("a broken webhook was asked %d times", calls)
	}
	open := with(t, file(", defaultAllow: true"), "ImagePolicyWebhook")
	refused(t, open.admit(running("good/two")), "")
	if open.notes["imagepolicywebhook.image-policy.k8s.io/failed-open"] != "true" {
		t.Errorf("notes %v", open.notes)
	}
}

func TestHowLongPodsStay(t *testing.T) {
	mutators, _, err := admission.Build(admission.Config{NotReadySeconds: ptr.To[int64](7), UnreachableSeconds: ptr.To[int64](0)})
	if err != nil {
		t.Fatal(err)
	}
	g := with(t, "")
	g.mutators, g.validators = mutators, nil
	p := pod("p", corev1.PodSpec{})
	if err := g.admit(create("pods", "", p)); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, x := range p.Spec.Tolerations {
		got[x.Key] = *x.TolerationSeconds
	}
	if d := cmp.Diff(map[string]int64{corev1.TaintNodeNotReady: 7, corev1.TaintNodeUnreachable: 0}, got); d != "" {
		t.Error(d)
	}
}
