package volume

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	certv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/client"
)

// claim resolves a persistent volume claim to a volume that this node can mount without a driver: local or hostPath. One that is the pod's own must have been made for it: its name
// alone opens nobody else's.
func (j *job) claim(name string, readOnly, own bool) (mounted, error) {
	if j.cfg.Transport == nil {
		return mounted{}, fmt.Errorf("this node has no API to ask for claim %q", name)
	}
	pvc, err := client.Of[*corev1.PersistentVolumeClaim](j.cfg.Transport).Get(j.ctx, j.pod.Namespace, name)
	if err != nil {
		return mounted{}, err
	}
	if own {
		if err := ephemeral.VolumeIsForPod(j.pod, pvc); err != nil {
			return mounted{}, err
		}
	}
	if pvc.Status.Phase != corev1.ClaimBound || pvc.Spec.VolumeName == "" {
		return mounted{}, fmt.Errorf("persistentvolumeclaim %q is not bound to a volume yet", name)
	}
	pv, err := client.Of[*corev1.PersistentVolume](j.cfg.Transport).Get(j.ctx, "", pvc.Spec.VolumeName)
	if err != nil {
		return mounted{}, err
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return mounted{}, fmt.Errorf("persistentvolume %q is bound to another claim than %q", pv.Name, name)
	}
	if m := pvc.Spec.VolumeMode; m != nil && *m == corev1.PersistentVolumeBlock {
		return mounted{}, fmt.Errorf("persistentvolumeclaim %q has volumeMode Block, which this node does not support", name)
	}
	var got mounted
	switch {
	case pv.Spec.HostPath != nil:
		got, err = j.hostPath(pv.Spec.HostPath.Path, pv.Spec.HostPath.Type)
	case pv.Spec.Local != nil:
		directory := corev1.HostPathDirectory
		got, err = j.hostPath(pv.Spec.Local.Path, &directory)
		if err == nil {
			err = j.own(got.path, false)
		}
	default:
		err = refuse(pv)
	}
	got.readOnly = readOnly
	return got, err
}

// sourceName names the field of a volume source that is set.
func sourceName(s any) string {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "none"
}

func imageSpec(ref, asked string) *runtimeapi.ImageSpec {
	return &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: asked}
}

// addTrustBundle adds the certificates of one ClusterTrustBundle by name, or of all of a signer that a selector picks.
func (j *job) addTrustBundle(p payload, s *corev1.ClusterTrustBundleProjection, mode *int32) error {
	if j.cfg.Transport == nil {
		return fmt.Errorf("this node has no API to ask for trust bundles")
	}
	bundles := client.Of[*certv1beta1.ClusterTrustBundle](j.cfg.Transport)
	var pems []string
	switch {
	case s.Name != nil:
		b, err := bundles.Get(j.ctx, "", *s.Name)
		if err != nil {
			return missingIsEmpty(err, s.Optional)
		}
		pems = []string{b.Spec.TrustBundle}
	case s.SignerName != nil:
		if s.LabelSelector == nil {
			break // a selector that is not set picks nothing, as documented
		}
		selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
		if err != nil {
			return err
		}
		list, err := bundles.List(j.ctx, "", metav1.ListOptions{LabelSelector: selector.String(), FieldSelector: "spec.signerName=" + *s.SignerName})
		if err != nil {
			return err
		}
		for _, b := range list {
			pems = append(pems, strings.TrimSuffix(b.Spec.TrustBundle, "\n")+"\n")
		}
		sort.Strings(pems)
	}
	if len(pems) == 0 && (s.Optional == nil || !*s.Optional) {
		return fmt.Errorf("no ClusterTrustBundle matches the projection to %q", s.Path)
	}
	return p.add(s.Path, []byte(strings.Join(pems, "")), nil, mode, nil)
}
