package kinds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/yare-project/yare/kind"
)

// plain and gated are one pod's spec without and with every field that Kubernetes 1.36 has off by default.
const (
	plain = `{restartPolicy: %s, containers: [{name: c, image: "i:1"}],` +
		` volumes: [{name: v, projected: {sources: [{}, {}]}}], os: {name: linux}}`
	gated = `{restartPolicy: %s, containers: [{name: c, image: "i:1", lifecycle: {stopSignal: SIGUSR1}}],` +
		` volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: b, path: p}},` +
		` {podCertificate: {signerName: a.b/c, keyType: ED25519, keyPath: k}}]}}], os: {name: linux}}`
)

var podCarriers = map[string]string{
	"pods":                   `{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: %s}`,
	"podtemplates":           `{apiVersion: v1, kind: PodTemplate, metadata: {name: x}, template: {spec: %s}}`,
	"replicationcontrollers": `{apiVersion: v1, kind: ReplicationController, metadata: {name: x}, spec: {selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: %s}}}`,
	"replicasets":            `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: %s}}}`,
	"deployments":            `{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: %s}}}`,
	"daemonsets":             `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: %s}}}`,
	"statefulsets":           `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: %s}}}`,
	"jobs":                   `{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {template: {spec: %s}}}`,
	"cronjobs":               `{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}, spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: %s}}}}}`,
}

// TestDisabledPodFields: a field whose feature is off is as if it had not been sent, in every kind that carries a pod's spec. What an object has from
// elsewhere stays.
func TestDisabledPodFields(t *testing.T) {
	tried := 0
	everyKind(t, func(t *testing.T, _ *kind.Group, k *kind.Kind) {
		frame, carries := podCarriers[k.Names.Plural]
		if !carries {
			return
		}
		tried++
		doc := func(spec string) string {
			policy := "Always"
			if strings.HasSuffix(k.Names.Plural, "jobs") {
				policy = "Never"
			}
			return fmt.Sprintf(frame, fmt.Sprintf(spec, policy))
		}
		without, errs := write(t, k, doc(plain), nil, false)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		with, errs := write(t, k, doc(gated), nil, false)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		if d := cmp.Diff(text(without), text(with)); d != "" {
			t.Errorf("created (-without +with the fields):\n%s", d)
		}
		updated, _ := write(t, k, doc(gated), without, false)
		if again, _ := write(t, k, doc(plain), without, false); text(again) != text(updated) {
			t.Errorf("updated (-without +with the fields):\n%s", cmp.Diff(text(again), text(updated)))
		}
		old, _ := decode(t, k, doc(gated))
		kept, _ := write(t, k, doc(gated), old, false)
		for _, field := range []string{"stopSignal", "clusterTrustBundle", "podCertificate"} {
			if !strings.Contains(text(kept), field) {
				t.Errorf("an update loses %s, which the object had", field)
			}
		}
	})
	if tried != len(podCarriers) {
		t.Errorf("tried %d kinds of %d", tried, len(podCarriers))
	}
}

// TestDisabledFields: the same for single kinds. kept is what an update keeps of an object that has the fields already.
func TestDisabledFields(t *testing.T) {
	cases := map[string]struct {
		doc    string
		status bool
		gone   [][]string
	}{
		"statefulsets": {
			doc: `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}},` +
				` selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: "i:1"}]}}}}`,
			gone: [][]string{{"spec", "updateStrategy", "rollingUpdate", "maxUnavailable"}},
		},
		"persistentvolumeclaims": {
			doc: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}},` +
				` dataSourceRef: {apiGroup: a.b, kind: C, name: d, namespace: e}}}`,
			gone: [][]string{{"spec", "dataSourceRef"}},
		},
		"pods": {
			doc: `{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: c, image: "i:1"}]}, status: {` +
				` nodeAllocatableResourceClaimStatuses: [{resourceClaimName: r}], containerStatuses: [{name: c, volumeMounts: [{name: v, mountPath: /v,` +
				` volumeStatus: {image: {imageRef: "i@sha256:1"}}}]}]}}`,
			status: true,
			gone:   [][]string{{"status", "nodeAllocatableResourceClaimStatuses"}, {"status", "containerStatuses", "0", "volumeMounts", "0", "volumeStatus"}},
		},
		"resourceslices": {
			doc: `{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: x}, spec: {driver: a.b, pool: {name: p, resourceSliceCount: 1}, nodeName: n,` +
				` devices: [{name: d, nodeAllocatableResourceMappings: {cpu: {}}, attributes: {a: {ints: [1]}, b: {strings: [x]}, c: {bools: [true]}, d: {versions: ["1.2.3"]}, e: {int: 1}}}]}}`,
			gone: [][]string{{"spec", "devices", "0", "nodeAllocatableResourceMappings"}, {"spec", "devices", "0", "attributes", "a", "ints"},
				{"spec", "devices", "0", "attributes", "b", "strings"}, {"spec", "devices", "0", "attributes", "c", "bools"}, {"spec", "devices", "0", "attributes", "d", "versions"}},
		},
	}
	everyKind(t, func(t *testing.T, _ *kind.Group, k *kind.Kind) {
		c, ok := cases[k.Names.Plural]
		if !ok {
			return
		}
		delete(cases, k.Names.Plural)
		stored, _ := decode(t, k, c.doc)
		bare := k.New()
		if !c.status {
			bare = nil
		}
		fresh, _ := write(t, k, c.doc, bare, c.status)
		kept, _ := write(t, k, c.doc, stored, c.status)
		for _, path := range c.gone {
			if v, there := at(t, fresh, path); there {
				t.Errorf("%v is taken: %v", path, v)
			}
			if _, there := at(t, kept, path); !there {
				t.Errorf("%v is lost, which the object had", path)
			}
		}
	})
	if len(cases) > 0 {
		t.Errorf("no kinds for %v", cases)
	}
}

// at walks an object's fields, maps and lists.
func at(t *testing.T, obj kind.Object, path []string) (any, bool) {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	var v any = (&unstructured.Unstructured{Object: fields}).UnstructuredContent()
	for _, step := range path {
		there := false
		switch x := v.(type) {
		case map[string]any:
			v, there = x[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil {
				t.Fatal(err)
			}
			if there = i < len(x); there {
				v = x[i]
			}
		}
		if !there {
			return nil, false
		}
	}
	return v, true
}
