package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// A class of the in-tree plugin for EBS, from before its driver took over (KEP-625): the driver's provisioner is asked, what it makes is placed and counted as
// the driver's, and a node without drivers says whose volume it can't mount. The test is the driver.
func TestACloudDiskIsItsDriversVolume(t *testing.T) {
	q := startQuick(t)
	ctx := t.Context()
	const driver, plugin = "ebs.csi.aws.com", "kubernetes.io/aws-ebs"
	q.until("the node says that drivers took over", func(ctx context.Context) error {
		n, err := q.api.StorageV1().CSINodes().Get(ctx, "dinghy", metav1.GetOptions{})
		if err == nil && !strings.Contains(n.Annotations["storage.alpha.kubernetes.io/migrated-plugins"], plugin) {
			err = fmt.Errorf("annotations are %v", n.Annotations)
		}
		return err
	})
	patch := []byte(`{"metadata":{"labels":{"topology.ebs.csi.aws.com/zone":"eu-1a"}}}`)
	if _, err := q.api.CoreV1().Nodes().Patch(ctx, "dinghy", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	patch = []byte(`{"spec":{"drivers":[{"name":"ebs.csi.aws.com","nodeID":"i-1","topologyKeys":["topology.ebs.csi.aws.com/zone"],"allocatable":{"count":1}}]}}`)
	if _, err := q.api.StorageV1().CSINodes().Patch(ctx, "dinghy", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp2"}, Provisioner: plugin, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	if _, err := q.api.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.api.CoreV1().PersistentVolumeClaims("default").Create(ctx, claimOf("data", "gp2", "1Gi"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.mount("user", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
	var claim *corev1.PersistentVolumeClaim
	q.until("the driver's provisioner is asked for a volume on the node", func(ctx context.Context) (err error) {
		claim, err = q.api.CoreV1().PersistentVolumeClaims("default").Get(ctx, "data", metav1.GetOptions{})
		if err == nil && (claim.Annotations["volume.kubernetes.io/storage-provisioner"] != driver || claim.Annotations["volume.kubernetes.io/selected-node"] != "dinghy") {
			err = fmt.Errorf("annotations are %v", claim.Annotations)
		}
		return err
	})
	// It makes a volume of the plugin, so that a cluster of before could read it.
	made := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": plugin}}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")}, AccessModes: claim.Spec.AccessModes, StorageClassName: "gp2",
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data", UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://eu-1a/vol-1"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"eu-1a"}}}}}}}}}
	if _, err := q.api.CoreV1().PersistentVolumes().Create(ctx, made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.claimPhase("data", corev1.ClaimBound)
	if v := q.volumePhase("pvc-1", corev1.VolumeBound); v.Annotations["pv.kubernetes.io/migrated-to"] != driver {
		t.Errorf("the volume does not say who took it over: %v", v.Annotations)
	}
	q.until("the pod is bound, and its node says who would have to mount its volume", func(ctx context.Context) error {
		p, err := q.api.CoreV1().Pods("default").Get(ctx, "user", metav1.GetOptions{})
		if err == nil && p.Spec.NodeName != "dinghy" {
			err = fmt.Errorf("it is on %q: %+v", p.Spec.NodeName, p.Status.Conditions)
		}
		if err != nil {
			return err
		}
		return q.told(ctx, "user", `persistentvolume "pvc-1" (awsElasticBlockStore) is volume vol-1 of CSI driver ebs.csi.aws.com, and this node runs no CSI drivers`)
	})
	// The driver can attach one volume there: the same one again, but no other.
	q.mount("same", corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}})
	q.mount("other", corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-2"}})
	q.lands("same", "dinghy")
	q.until("another volume is refused with the driver's name", func(ctx context.Context) error {
		p, err := q.api.CoreV1().Pods("default").Get(ctx, "other", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "1 node(s) exceed max volume count") &&
				strings.Contains(c.Message, "room for 1 more volume of driver ebs.csi.aws.com on node dinghy (1 of 1 attached)") {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", p.Status.Conditions)
	})
}

// mount makes a pod with one volume.
func (q *quick) mount(name string, source corev1.VolumeSource) {
	q.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: source}}}}
	if _, err := q.api.CoreV1().Pods("default").Create(q.Context(), pod, metav1.CreateOptions{}); err != nil {
		q.Fatal(err)
	}
}

// told looks for an Event about a pod with these words.
func (q *quick) told(ctx context.Context, about, words string) error {
	list, err := q.api.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + about})
	if err != nil {
		return err
	}
	var all []string
	for _, e := range list.Items {
		if strings.Contains(e.Message, words) {
			return nil
		}
		all = append(all, e.Message)
	}
	return fmt.Errorf("there are only %q", all)
}
