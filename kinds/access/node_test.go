package access

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/internal/resource"
)

func nameMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func pod(name, node string, spec corev1.PodSpec) *corev1.Pod {
	spec.NodeName = node
	return &corev1.Pod{ObjectMeta: nameMeta("ns", name), Spec: spec}
}

func secretVolume(name string) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}
}

func claimVolume(name string) corev1.Volume {
	return corev1.Volume{Name: "c", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// everything is a pod that refers to one object of each kind in each way.
func everything() *corev1.Pod {
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	env := func(secret, configMap string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "plain"},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref(secret)}}},
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref(configMap)}}}}
	}
	return pod("p", "n1", corev1.PodSpec{
		ServiceAccountName: "sa",
		ImagePullSecrets:   []corev1.LocalObjectReference{ref("s-pull")},
		InitContainers:     []corev1.Container{{Env: env("s-init", "c-init")}},
		Containers: []corev1.Container{{Env: env("s-env", "c-env"), EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("s-from")}}, {ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("c-from")}}}}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: env("s-debug", "c-debug")}}},
		ResourceClaims:      []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("claim-gpu")}},
		Volumes: []corev1.Volume{secretVolume("s-volume"), claimVolume("pvc"),
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("c-volume")}}},
			{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s-csi"}}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: ref("s-projected")}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("c-projected")}}}}}},
		},
	})
}

func TestPodReferences(t *testing.T) {
	set := func(names string) map[string]bool {
		out := map[string]bool{}
		for _, n := range strings.Fields(names) {
			out[n] = true
		}
		return out
	}
	want := References{
		Secrets:        set("s-pull s-init s-env s-from s-debug s-volume s-csi s-projected"),
		ConfigMaps:     set("c-init c-env c-from c-debug c-volume c-projected"),
		Claims:         set("pvc p-scratch"),
		ResourceClaims: set("claim-gpu"),
	}
	if d := cmp.Diff(want, PodReferences(everything())); d != "" {
		t.Error(d)
	}
}

func node(name string) user.Info {
	return &user.DefaultInfo{Name: NodePrefix + name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
}

// ask parses "verb group/resource[/sub] namespace/name [field=value]"; "core" and "-" stand for nothing.
func ask(who user.Info, question string) authorizer.AttributesRecord {
	f := strings.Fields(question)
	p := strings.Split(f[1], "/")
	a := authorizer.AttributesRecord{User: who, Verb: f[0], APIGroup: strings.TrimPrefix(p[0], "core"), Resource: p[1], ResourceRequest: true}
	if len(p) > 2 {
		a.Subresource = p[2]
	}
	if len(f) > 2 {
		namespace, name, _ := strings.Cut(f[2], "/")
		a.Namespace, a.Name = strings.TrimPrefix(namespace, "-"), name
	}
	if len(f) > 3 {
		s, err := fields.ParseSelector(f[3])
		if err != nil {
			panic(err)
		}
		a.FieldSelectorRequirements = s.Requirements()
	}
	return a
}

func TestNodeAuthorizer(t *testing.T) {
	n := NewNode(nil)
	n.patience = 0
	mirror := pod("mirror", "n1", corev1.PodSpec{Volumes: []corev1.Volume{secretVolume("s-mirror")}})
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	n.graph.set(everything())
	n.graph.set(mirror)
	n.graph.set(pod("unscheduled", "", corev1.PodSpec{Volumes: []corev1.Volume{secretVolume("s-unscheduled")}}))
	n.graph.set(&corev1.PersistentVolume{ObjectMeta: nameMeta("", "pv"), Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "pvc"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			NodeStageSecretRef:         &corev1.SecretReference{Namespace: "storage", Name: "s-stage"},
			ControllerPublishSecretRef: &corev1.SecretReference{Namespace: "storage", Name: "s-controller"}}}}})
	n.graph.set(&corev1.PersistentVolume{ObjectMeta: nameMeta("", "pv-free"), Spec: corev1.PersistentVolumeSpec{}})
	n.graph.set(&storagev1.VolumeAttachment{ObjectMeta: nameMeta("", "va"), Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}})
	n.graph.set(&resourcev1.ResourceSlice{ObjectMeta: nameMeta("", "slice"), Spec: resourcev1.ResourceSliceSpec{NodeName: ptr.To("n1")}})

	// What n1 may do, and n2, which has no pods, may not.
	for _, question := range strings.Split(`get core/secrets ns/s-pull
get core/secrets ns/s-debug
list core/secrets ns/s-env
watch core/secrets ns/s-volume
get core/configmaps ns/c-projected
get core/persistentvolumeclaims ns/pvc
get core/persistentvolumeclaims ns/p-scratch
patch core/persistentvolumeclaims/status ns/pvc
get core/persistentvolumes -/pv
get core/secrets storage/s-stage
get resource.k8s.io/resourceclaims ns/claim-gpu
get storage.k8s.io/volumeattachments -/va
get resource.k8s.io/resourceslices -/slice
list resource.k8s.io/resourceslices - spec.nodeName=n1
create core/serviceaccounts/token ns/sa
get core/serviceaccounts ns/sa
get core/pods ns/p
get core/pods ns/mirror
list core/pods - spec.nodeName=n1
watch core/pods - spec.nodeName=n1
get core/nodes -/n1
watch core/nodes -/n1
update coordination.k8s.io/leases kube-node-lease/n1
get storage.k8s.io/csinodes -/n1`, "\n") {
		if d, reason, _ := n.Authorize(context.Background(), ask(node("n1"), question)); d != authorizer.DecisionAllow {
			t.Errorf("n1 may not %s: %s", question, reason)
		}
		if d, _, _ := n.Authorize(context.Background(), ask(node("n2"), question)); d == authorizer.DecisionAllow {
			t.Errorf("n2 may %s", question)
		}
	}
	// What every node may do.
	for _, question := range strings.Split(`create core/nodes -
patch core/nodes/status -/n1
create core/pods ns
delete core/pods ns/p
patch core/pods/status ns/p
create core/pods/eviction ns/p
create core/events ns
list core/services -
create authentication.k8s.io/tokenreviews -
create authorization.k8s.io/subjectaccessreviews -
create coordination.k8s.io/leases kube-node-lease
create storage.k8s.io/csinodes -
create certificates.k8s.io/certificatesigningrequests -
watch node.k8s.io/runtimeclasses -
watch storage.k8s.io/csidrivers -`, "\n") {
		if d, reason, _ := n.Authorize(context.Background(), ask(node("n1"), question)); d != authorizer.DecisionAllow {
			t.Errorf("n1 may not %s: %s", question, reason)
		}
	}
	// What no node may do.
	for _, question := range strings.Split(`get core/secrets ns/other
get core/secrets other/s-pull
get core/secrets ns/s-mirror
get core/secrets ns/s-unscheduled
get core/secrets storage/s-controller
list core/secrets ns
list core/secrets -
update core/secrets ns/s-pull
delete core/secrets ns/s-pull
get core/configmaps ns/other
update core/configmaps ns/c-env
list core/persistentvolumeclaims ns
update core/persistentvolumeclaims ns/pvc
get core/persistentvolumes -/pv-free
list core/persistentvolumes -
create core/serviceaccounts/token ns/other
create core/serviceaccounts ns
list core/serviceaccounts ns
list core/pods -
list core/pods ns
list core/pods - spec.nodeName=n2
list core/pods - spec.nodeName!=n1
update core/pods ns/p
patch core/pods ns/p
create core/pods/exec ns/p
create core/pods/binding ns/p
get core/pods/log ns/p
get core/nodes -/n2
list core/nodes -
delete core/nodes -/n1
update coordination.k8s.io/leases kube-node-lease/n2
update coordination.k8s.io/leases kube-system/n1
list coordination.k8s.io/leases kube-node-lease
update storage.k8s.io/csinodes -/n2
list resource.k8s.io/resourceslices -
create rbac.authorization.k8s.io/clusterrolebindings -
impersonate core/users -/root
get apps/deployments ns/d`, "\n") {
		if d, _, _ := n.Authorize(context.Background(), ask(node("n1"), question)); d == authorizer.DecisionAllow {
			t.Errorf("n1 may %s", question)
		}
	}
}

func TestWhoIsANode(t *testing.T) {
	for name, who := range map[string]user.Info{
		"no group":   &user.DefaultInfo{Name: "system:node:n1"},
		"no prefix":  &user.DefaultInfo{Name: "n1", Groups: []string{user.NodesGroup}},
		"user alike": &user.DefaultInfo{Name: "xsystem:node:n1", Groups: []string{user.NodesGroup}},
		"nobody":     nil,
	} {
		if _, ok := NodeOf(who); ok {
			t.Errorf("%s is a node", name)
		}
	}
	n := NewNode(nil)
	if d, reason, _ := n.Authorize(context.Background(), ask(node(""), "create core/events ns")); d == authorizer.DecisionAllow || !strings.Contains(reason, "unknown node") {
		t.Errorf("a node without a name: %v %q", d, reason)
	}
	if _, _, partial, err := n.RulesFor(context.Background(), node("n1"), "ns"); !partial || err == nil {
		t.Error("a node's rules are said to be complete")
	}
}

func TestAccessEndsWithThePod(t *testing.T) {
	g := newGraph()
	secret := object{secrets, "ns", "s"}
	a, b := pod("a", "n1", corev1.PodSpec{Volumes: []corev1.Volume{secretVolume("s")}}), pod("b", "n1", corev1.PodSpec{Volumes: []corev1.Volume{secretVolume("s")}})
	g.set(a)
	g.set(a)
	g.set(b)
	g.drop(a)
	if ok, _ := g.related("n1", secret); !ok {
		t.Error("one of two pods went, and the other lost its secret")
	}
	g.drop(b)
	if ok, _ := g.related("n1", secret); ok {
		t.Error("the node keeps access without any pod")
	}
	if len(g.nodes)+len(g.pods)+len(g.volumes)+len(g.secretVolumes) != 0 {
		t.Errorf("something is left in the graph: %v %v", g.nodes, g.pods)
	}
}

func TestTheGraphIsWhatItsObjectsAre(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	g := newGraph()
	pods, volumes := map[string]*corev1.Pod{}, map[string]*corev1.PersistentVolume{}
	for range 2000 {
		name := fmt.Sprint(random.IntN(5))
		if random.IntN(2) == 0 {
			p := pod(name, []string{"", "n1", "n2"}[random.IntN(3)], corev1.PodSpec{Volumes: []corev1.Volume{secretVolume(fmt.Sprint("s", random.IntN(3))), claimVolume(fmt.Sprint(random.IntN(3)))}})
			if random.IntN(3) == 0 {
				delete(pods, name)
				g.drop(p)
			} else {
				pods[name] = p
				g.set(p)
			}
			continue
		}
		v := &corev1.PersistentVolume{ObjectMeta: nameMeta("", name)}
		if random.IntN(3) > 0 {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: fmt.Sprint(random.IntN(3))}
			v.Spec.CSI = &corev1.CSIPersistentVolumeSource{NodeStageSecretRef: &corev1.SecretReference{Name: fmt.Sprint("s", random.IntN(3))}}
		}
		if random.IntN(3) == 0 {
			delete(volumes, name)
			g.drop(v)
		} else {
			volumes[name] = v
			g.set(v)
		}
	}
	fresh := newGraph()
	for _, p := range pods {
		fresh.set(p)
	}
	for _, v := range volumes {
		fresh.set(v)
	}
	same := cmp.AllowUnexported(object{}, podNeeds{}, volumeNeeds{})
	// The order of a pod's needs is a map's.
	if d := cmp.Diff([]any{fresh.nodes, fresh.volumes, fresh.secretVolumes}, []any{g.nodes, g.volumes, g.secretVolumes}, same); d != "" {
		t.Error(d)
	}
}

func TestARefusalWaitsForThePodToBeHeardOf(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	n := NewNode(clk)
	answer := make(chan authorizer.Decision, 1)
	go func() {
		d, _, _ := n.Authorize(context.Background(), ask(node("n1"), "get core/secrets ns/s"))
		answer <- d
	}()
	for !clk.HasWaiters() {
		select {
		case d := <-answer:
			t.Fatalf("answered %v at once", d)
		default:
		}
	}
	n.graph.set(pod("other", "n1", corev1.PodSpec{}))
	n.graph.set(pod("a", "n1", corev1.PodSpec{Volumes: []corev1.Volume{secretVolume("s")}}))
	if d := <-answer; d != authorizer.DecisionAllow {
		t.Errorf("got %v", d)
	}
}

type scripted map[string]*watch.FakeWatcher

func (s scripted) Watch(_ context.Context, ref resource.Ref, _ metav1.ListOptions) (watch.Interface, error) {
	return s[ref.Resource], nil
}

func TestRunFollowsTheCluster(t *testing.T) {
	source := scripted{}
	end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	for _, gvr := range nodeFeeds {
		source[gvr.Resource] = watch.NewFakeWithChanSize(10, false)
	}
	source["pods"].Add(everything())
	for _, w := range source {
		w.Action(watch.Bookmark, end)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n, done := NewNode(clock.RealClock{}), make(chan error)
	go func() { done <- n.Run(ctx, source, slog.New(slog.DiscardHandler)) }()
	<-n.Synced()
	if d, reason, _ := n.Authorize(ctx, ask(node("n1"), "get core/secrets ns/s-pull")); d != authorizer.DecisionAllow {
		t.Error(reason)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
