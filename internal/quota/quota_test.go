package quota_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/internal/quota"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func pod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
}

func TestWhatObjectsUse(t *testing.T) {
	big := pod(container(amounts("cpu", "1", "memory", "1Gi", "ephemeral-storage", "2Gi", "hugepages-2Mi", "4Mi", "example.com/gpu", "2"),
		amounts("cpu", "2", "memory", "2Gi", "ephemeral-storage", "3Gi", "hugepages-2Mi", "4Mi", "example.com/gpu", "2")))
	finished := big.DeepCopy()
	finished.Status.Phase = corev1.PodSucceeded
	lost := big.DeepCopy()
	lost.DeletionTimestamp, lost.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(-31 * time.Second)}, ptr.To[int64](30)
	leaving := lost.DeepCopy()
	leaving.DeletionTimestamp.Time = now
	whole := amounts("count/pods", "1", "pods", "1", "cpu", "1", "requests.cpu", "1", "limits.cpu", "2", "memory", "1Gi", "requests.memory", "1Gi", "limits.memory", "2Gi",
		"ephemeral-storage", "2Gi", "requests.ephemeral-storage", "2Gi", "limits.ephemeral-storage", "3Gi", "hugepages-2Mi", "4Mi", "requests.hugepages-2Mi", "4Mi",
		"requests.example.com/gpu", "2")
	ports := []corev1.ServicePort{{Port: 1}, {Port: 2, NodePort: 30000}}
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("gold"),
		Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", "5Gi")}}}
	grown := claim.DeepCopy()
	grown.Status.AllocatedResources = amounts("storage", "7Gi")
	devices := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2}},
		{FirstAvailable: []resourcev1.DeviceSubRequest{
			{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
			{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3},
			{DeviceClassName: "tpu", AllocationMode: resourcev1.DeviceAllocationModeAll}}},
	}}}}
	for name, test := range map[string]struct {
		gr   schema.GroupResource
		obj  quota.Object
		want corev1.ResourceList
	}{
		"pod":                         {corev1.Resource("pods"), big, whole},
		"finished pod":                {corev1.Resource("pods"), finished, amounts("count/pods", "1")},
		"pod past its grace period":   {corev1.Resource("pods"), lost, amounts("count/pods", "1")},
		"pod in its grace period":     {corev1.Resource("pods"), leaving, whole},
		"config map":                  {corev1.Resource("configmaps"), &corev1.ConfigMap{}, amounts("count/configmaps", "1", "configmaps", "1")},
		"something with a group":      {schema.GroupResource{Group: "example.com", Resource: "boats"}, &metav1.PartialObjectMetadata{}, amounts("count/boats.example.com", "1")},
		"service":                     {corev1.Resource("services"), &corev1.Service{Spec: corev1.ServiceSpec{Ports: ports}}, amounts("count/services", "1", "services", "1", "services.nodeports", "0", "services.loadbalancers", "0")},
		"node port":                   {corev1.Resource("services"), &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: ports}}, amounts("count/services", "1", "services", "1", "services.nodeports", "2", "services.loadbalancers", "0")},
		"balancer without node ports": {corev1.Resource("services"), &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports, AllocateLoadBalancerNodePorts: ptr.To(false)}}, amounts("count/services", "1", "services", "1", "services.nodeports", "1", "services.loadbalancers", "1")},
		"claim": {corev1.Resource("persistentvolumeclaims"), claim, amounts("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "5Gi",
			"gold.storageclass.storage.k8s.io/persistentvolumeclaims", "1", "gold.storageclass.storage.k8s.io/requests.storage", "5Gi")},
		"claim that holds more": {corev1.Resource("persistentvolumeclaims"), grown, amounts("count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "7Gi",
			"gold.storageclass.storage.k8s.io/persistentvolumeclaims", "1", "gold.storageclass.storage.k8s.io/requests.storage", "7Gi")},
		"devices": {resourcev1.Resource("resourceclaims"), devices, amounts("count/resourceclaims.resource.k8s.io", "1",
			"gpu.deviceclass.resource.k8s.io/devices", "5", "tpu.deviceclass.resource.k8s.io/devices", "32")},
	} {
		t.Run(name, func(t *testing.T) {
			got := quota.Usage(test.gr, test.obj, now)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if covered := quota.Covered(test.gr, got); len(covered) != len(got) {
				t.Errorf("uses %v, of which a quota can bound only %v", quota.Names(got), covered)
			}
		})
	}
	for _, name := range []corev1.ResourceName{"example.com/gpu", "limits.example.com/gpu", "services", "count/podsx", "limits.hugepages-2Mi"} {
		if quota.Covers(corev1.Resource("pods"), name) {
			t.Errorf("pods use of %s", name)
		}
	}
}

func TestScopes(t *testing.T) {
	deadline, busy, urgent, elsewhere := pod(container(nil, nil)), pod(container(amounts("cpu", "1"), nil)), pod(container(nil, nil)), pod(container(nil, nil))
	deadline.Spec.ActiveDeadlineSeconds = ptr.To[int64](1)
	urgent.Spec.PriorityClassName = "urgent"
	elsewhere.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
		{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"other"}}}}}}
	fast := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{CurrentVolumeAttributesClassName: ptr.To("fast")}}
	all := map[string]quota.Object{"deadline": deadline, "busy": busy, "urgent": urgent, "elsewhere": elsewhere, "fast": fast, "service": &corev1.Service{}}
	scope := func(s ...corev1.ResourceQuotaScope) corev1.ResourceQuotaSpec {
		return corev1.ResourceQuotaSpec{Scopes: s}
	}
	selector := func(s corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values ...string) corev1.ResourceQuotaSpec {
		return corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{ScopeName: s, Operator: op, Values: values}}}}
	}
	for name, test := range map[string]struct {
		spec corev1.ResourceQuotaSpec
		want []string
	}{
		"none":                    {scope(), []string{"busy", "deadline", "elsewhere", "fast", "service", "urgent"}},
		"terminating":             {scope(corev1.ResourceQuotaScopeTerminating), []string{"deadline"}},
		"not terminating":         {scope(corev1.ResourceQuotaScopeNotTerminating), []string{"busy", "elsewhere", "urgent"}},
		"best effort, no end":     {scope(corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotTerminating), []string{"elsewhere", "urgent"}},
		"not best effort":         {scope(corev1.ResourceQuotaScopeNotBestEffort), []string{"busy"}},
		"a priority":              {scope(corev1.ResourceQuotaScopePriorityClass), []string{"urgent"}},
		"this priority":           {selector(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, "urgent"), []string{"urgent"}},
		"another priority":        {selector(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, "idle"), nil},
		"not this priority":       {selector(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpNotIn, "urgent"), []string{"busy", "deadline", "elsewhere"}},
		"no priority":             {selector(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpDoesNotExist), []string{"busy", "deadline", "elsewhere"}},
		"affinity elsewhere":      {scope(corev1.ResourceQuotaScopeCrossNamespacePodAffinity), []string{"elsewhere"}},
		"volume attributes class": {selector(corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ScopeSelectorOpIn, "fast"), []string{"fast"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, n := range []string{"busy", "deadline", "elsewhere", "fast", "service", "urgent"} {
				if quota.InScope(&corev1.ResourceQuota{Spec: test.spec}, all[n]) {
					got = append(got, n)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	p := pod(container(amounts("cpu", "1"), nil), corev1.Container{Name: "d"})
	got := quota.Missing(p, []corev1.ResourceName{"requests.cpu", "limits.memory", "requests.example.com/gpu"})
	if want := "limits.memory for: c,d; requests.cpu for: d"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu", "1")}
	if got := quota.Missing(p, []corev1.ResourceName{"limits.memory"}); got != "" {
		t.Errorf("with resources of the pod as a whole, containers lack %q", got)
	}
}

func TestLedger(t *testing.T) {
	l := quota.NewLedger()
	var changed []string
	begun := 0
	l.Watch(func(namespace string) { changed = append(changed, namespace) }, func() { begun++ })
	open := func(object types.UID, since string) *quota.Charge {
		c := &quota.Charge{Namespace: "ns", Object: object, Since: since, Amounts: map[types.UID]corev1.ResourceList{"q": amounts("pods", "1")}}
		l.Open(c, now)
		return c
	}
	pending := func(version string) int {
		t.Helper()
		switch p, ready := l.Pending("q", version); ready {
		case quota.Writing:
			return -1
		case quota.Behind:
			return -2
		default:
			return len(p)
		}
	}
	a := open("a", "")
	if got := pending("100"); got != -1 {
		t.Errorf("a charge that is being written: %d pending, want no answer", got)
	}
	l.Written(a, "q", "10")
	if !cmp.Equal(changed, []string{"ns"}) {
		t.Errorf("whoever waited for the charge was told of %v", changed)
	}
	changed = nil
	if pending("9") != -2 || pending("10") != 1 {
		t.Errorf("a charge written at 10: %d at 9, %d at 10, want -2 and 1", pending("9"), pending("10"))
	}
	if charged := l.Seen("a", "11", false); !charged["q"] || pending("10") != 0 {
		t.Errorf("an object that came: charged %v, still %d", charged, pending("10"))
	}
	b := open("b", "20")
	l.Written(b, "q", "21")
	if charged := l.Seen("b", "20", false); charged != nil || pending("21") != 1 {
		t.Errorf("the state before the change: charged %v, %d pending", charged, pending("21"))
	}
	if charged := l.Seen("b", "22", false); !charged["q"] || pending("21") != 0 {
		t.Errorf("the state after the change: charged %v, %d pending", charged, pending("21"))
	}
	l.Void(open("c", ""))
	if pending("30") != 0 || !cmp.Equal(changed, []string{"ns"}) {
		t.Errorf("a void charge: %d pending, told of %v", pending("30"), changed)
	}
	l.Written(open("d", ""), "q", "31")
	if after, more := l.Expire(now); after != quota.Patience || !more {
		t.Errorf("expires after %v, %v", after, more)
	}
	if _, more := l.Expire(now.Add(quota.Patience)); more || pending("40") != 0 || len(changed) != 2 {
		t.Errorf("an old charge: more %v, %d pending, told of %v", more, pending("40"), changed)
	}
	if begun != 4 {
		t.Errorf("%d times a first charge, want 4", begun)
	}
}
