package kinds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds"
)

// TestColumns compares what kubectl get shows of an object, wide columns last, with what users know. It is ten minutes past midnight.
func TestColumns(t *testing.T) {
	for _, c := range []struct{ object, want string }{
		{`apiVersion: batch/v1
kind: Job
spec: {completions: 3, template: {spec: {containers: [{name: a, image: x}, {name: b, image: z}]}}, selector: {matchLabels: {k: v}}}
status: {succeeded: 1, startTime: "2025-01-01T00:08:00Z"}`,
			"Status=Running Completions=1/3 Duration=2m Containers=a,b Images=x,z Selector=k=v"},
		{`apiVersion: batch/v1
kind: Job
spec: {parallelism: 2}
status: {startTime: "2025-01-01T00:00:00Z", completionTime: "2025-01-01T00:00:30Z", conditions: [{type: Complete, status: "True"}]}`,
			"Status=Complete Completions=0/1 of 2 Duration=30s Containers= Images= Selector=<none>"},
		{`apiVersion: batch/v1
kind: CronJob
spec: {schedule: "*/5 * * * *", suspend: false, jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: x}]}}}}}
status: {active: [{name: j}], lastScheduleTime: "2025-01-01T00:05:00Z"}`,
			"Schedule=*/5 * * * * Timezone=<none> Suspend=False Active=1 Last Schedule=5m Containers=a Images=x Selector=<none>"},
		{`apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
spec:
  scaleTargetRef: {kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  metrics:
  - {type: Resource, resource: {name: cpu, target: {averageUtilization: 80}}}
  - {type: Resource, resource: {name: memory, target: {averageValue: 1Gi}}}
  - {type: Pods, pods: {metric: {name: m}, target: {averageValue: "5"}}}
status: {currentReplicas: 2, currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 40}}}]}`,
			"Reference=Deployment/web Targets=cpu: 40%/80%, memory: <unknown>/1Gi + 1 more... MinPods=1 MaxPods=10 Replicas=2"},
		{`apiVersion: policy/v1
kind: PodDisruptionBudget
spec: {minAvailable: 50%}
status: {disruptionsAllowed: 2}`, "Min Available=50% Max Unavailable=N/A Allowed Disruptions=2"},
		{`apiVersion: networking.k8s.io/v1
kind: Ingress
spec: {ingressClassName: nginx, rules: [{host: a.b}, {host: c.d}], tls: [{}]}
status: {loadBalancer: {ingress: [{ip: 10.0.0.2}, {hostname: lb.example.com}]}}`,
			"Class=nginx Hosts=a.b,c.d Address=10.0.0.2,lb.example.com Ports=80, 443"},
		{`apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: nginx, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}
spec: {controller: k8s.io/nginx}`, "Name=nginx (default) Controller=k8s.io/nginx Parameters=<none>"},
		{`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: yare.io/local`,
			"Name=local (default) Provisioner=yare.io/local ReclaimPolicy=Delete VolumeBindingMode=Immediate AllowVolumeExpansion=false"},
		{`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: [10.0.0.1, 10.0.0.2]}, {addresses: [10.0.0.3]}, {addresses: [10.0.0.4]}]`,
			"AddressType=IPv4 Ports=80 Endpoints=10.0.0.1,10.0.0.2,10.0.0.3 + 1 more..."},
		{`apiVersion: v1
kind: Event
metadata: {name: p.1}
type: Warning
reason: BackOff
message: "back-off restarting\n"
involvedObject: {kind: Pod, name: p, fieldPath: "spec.containers{c}"}
source: {component: kubelet, host: node-1}
firstTimestamp: "2025-01-01T00:00:00Z"
lastTimestamp: "2025-01-01T00:09:00Z"
count: 7`, "Last Seen=60s Type=Warning Reason=BackOff Object=pod/p Message=back-off restarting " +
			"Subobject=spec.containers{c} Source=kubelet, node-1 First Seen=10m Count=7 Name=p.1"},
		{`apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {creationTimestamp: "2025-01-01T00:00:00Z"}
value: 5`, "Value=5 Global-Default=false Age=10m PreemptionPolicy=PreemptLowerPriority"},
		{`apiVersion: coordination.k8s.io/v1
kind: Lease
spec: {holderIdentity: node-1}`, "Holder=node-1"},
		{`apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {creationTimestamp: "2025-01-01T00:00:00Z"}
spec: {priorityLevelConfiguration: {name: p}, matchingPrecedence: 9}`,
			"PriorityLevel=p MatchingPrecedence=9 DistinguisherMethod=<none> Age=10m MissingPL=?"},
		{`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {creationTimestamp: "2025-01-01T00:00:00Z"}`, "Created At=2025-01-01T00:00:00Z"},
		{`apiVersion: apiregistration.k8s.io/v1
kind: APIService
spec: {service: {namespace: ns, name: s}}
status: {conditions: [{type: Available, status: "False", reason: MissingEndpoints}]}`, "Service=ns/s Available=False (MissingEndpoints)"},
		{`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
status: {allocation: {}, reservedFor: [{resource: pods, name: p, uid: u}]}`, "State=allocated,reserved"},
	} {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(c.object), &meta); err != nil {
			t.Fatal(err)
		}
		k := kindOf(t, meta)
		obj, _ := decode(t, k, c.object)
		if k.Default != nil && meta.Kind != "Job" { // a job's parallelism is shown as it was stored
			k.Default(obj)
		}
		if diff := cmp.Diff(c.want, cells(k, obj)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", meta.Kind, diff)
		}
	}
}

func kindOf(t *testing.T, meta metav1.TypeMeta) *kind.Kind {
	t.Helper()
	gv, err := schema.ParseGroupVersion(meta.APIVersion)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range kinds.Groups() {
		for _, k := range g.Kinds {
			if _, ok := k.Version(gv); ok && k.Names.Kind == meta.Kind {
				return k
			}
		}
	}
	t.Fatalf("no kind %s %s", meta.APIVersion, meta.Kind)
	return nil
}

func cells(k *kind.Kind, obj kind.Object) string {
	now := time.Date(2025, 1, 1, 0, 10, 0, 0, time.UTC)
	var plain, wide []string
	for _, c := range k.Versions[0].Columns {
		cell := fmt.Sprintf("%s=%v", c.Name, c.Value(obj, now))
		if c.Priority > 0 {
			wide = append(wide, cell)
			continue
		}
		plain = append(plain, cell)
	}
	return strings.Join(append(plain, wide...), " ")
}
