package jsonwrite_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/internal/jsonwrite"
)

// podJSON is a pod of a Deployment as a cluster has it: scheduled, running, with the fields' managers.
const podJSON = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-7d9f8c6b5-x2x9k","generateName":"web-7d9f8c6b5-","namespace":"default","uid":"0b2c8d4e-6f1a-4b3c-9d5e-7f8091a2b3c4","resourceVersion":"18342","generation":1,"creationTimestamp":"2026-03-01T10:20:30Z","labels":{"app":"web","pod-template-hash":"7d9f8c6b5"},"annotations":{"prometheus.io/scrape":"true"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-7d9f8c6b5","uid":"1c2d3e4f-5a6b-7c8d-9e0f-a1b2c3d4e5f6","controller":true,"blockOwnerDeletion":true}],"managedFields":[{"manager":"yare","operation":"Update","apiVersion":"v1","time":"2026-03-01T10:20:30Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"1c2d3e4f-5a6b-7c8d-9e0f-a1b2c3d4e5f6\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}},{"manager":"node","operation":"Update","apiVersion":"v1","time":"2026-03-01T10:20:33Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.42.0.17\"}":{".":{},"f:ip":{}}},"f:startTime":{}}},"subresource":"status"}]},"spec":{"volumes":[{"name":"config","configMap":{"name":"web","defaultMode":420}},{"name":"kube-api-access-abcde","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],"containers":[{"name":"web","image":"registry.example.com/web:1.27","ports":[{"containerPort":80,"protocol":"TCP"}],"env":[{"name":"MODE","value":"a<b"}],"resources":{"limits":{"memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"volumeMounts":[{"name":"config","mountPath":"/etc/web"},{"name":"kube-api-access-abcde","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":80,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","nodeName":"node-1","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{"observedGeneration":1,"phase":"Running","conditions":[{"type":"PodReadyToStartContainers","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:20:32Z"},{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:20:30Z"},{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:20:33Z"},{"type":"ContainersReady","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:20:33Z"},{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T10:20:30Z"}],"hostIP":"192.0.2.10","hostIPs":[{"ip":"192.0.2.10"}],"podIP":"10.42.0.17","podIPs":[{"ip":"10.42.0.17"}],"startTime":"2026-03-01T10:20:30Z","containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-03-01T10:20:33Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/web:1.27","imageID":"registry.example.com/web@sha256:4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1","containerID":"containerd://6f1d1f0c7f3b9a9e1c1b2a3d4e5f60718293a4b5c6d7e8f9a0b1c2d3e4f50617","started":true}],"qosClass":"Burstable"}}`

func pod(t testing.TB) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := json.Unmarshal([]byte(podJSON), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPodIsWrittenWithoutAllocation(t *testing.T) {
	p := pod(t)
	same(t, p)
	same(t, *p)
	same(t, &corev1.PodList{Items: []corev1.Pod{*p, {}}})
	buf := make([]byte, 0, 16<<10)
	if n := testing.AllocsPerRun(200, func() {
		if _, err := jsonwrite.Append(buf, p); err != nil {
			t.Fatal(err)
		}
	}); n > 0.5 && !raceDetector { // which empties pools
		t.Errorf("%v allocations", n)
	}
}

func TestMarshalAllocatesWhatItReturns(t *testing.T) {
	p := pod(t)
	if n := testing.AllocsPerRun(200, func() {
		if _, err := jsonwrite.Marshal(p); err != nil {
			t.Fatal(err)
		}
	}); n > 1.5 && !raceDetector {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPod(b *testing.B) {
	p := pod(b)
	small := p.DeepCopy()
	small.ManagedFields = nil
	for name, p := range map[string]*corev1.Pod{"managed": p, "bare": small} {
		buf, err := jsonwrite.Append(nil, p)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/here", func(b *testing.B) {
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = jsonwrite.Append(buf[:0], p)
			}
		})
		b.Run(name+"/encodingjson", func(b *testing.B) {
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = json.Marshal(p)
			}
		})
	}
}
