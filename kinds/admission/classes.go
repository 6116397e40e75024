package admission

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// defaultStorageClass gives a new claim that names no class the default one, if there is one.
type defaultStorageClass struct{}

func (defaultStorageClass) Name() string { return "DefaultStorageClass" }

func (defaultStorageClass) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	claim, ok := r.Object.(*corev1.PersistentVolumeClaim)
	if !ok || !on(r, "", "persistentvolumeclaims", admissionv1.Create) || claim.Spec.StorageClassName != nil {
		return nil
	}
	if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named {
		return nil
	}
	classes, err := list[*storagev1.StorageClass](ctx, env, storagev1.GroupName, "storageclasses", "")
	if err != nil {
		return err
	}
	if class := newestDefault(classes, "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"); class != nil {
		claim.Spec.StorageClassName = ptr.To((*class).Name)
	}
	return nil
}

// defaultIngressClass does the same for an ingress.
type defaultIngressClass struct{}

func (defaultIngressClass) Name() string { return "DefaultIngressClass" }

func (defaultIngressClass) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	ingress, ok := r.Object.(*networkingv1.Ingress)
	if !ok || !on(r, networkingv1.GroupName, "ingresses", admissionv1.Create) || ingress.Spec.IngressClassName != nil {
		return nil
	}
	if _, named := ingress.Annotations["kubernetes.io/ingress.class"]; named {
		return nil
	}
	classes, err := list[*networkingv1.IngressClass](ctx, env, networkingv1.GroupName, "ingressclasses", "")
	if err != nil {
		return err
	}
	if class := newestDefault(classes, networkingv1.AnnotationIsDefaultIngressClass); class != nil {
		ingress.Spec.IngressClassName = ptr.To((*class).Name)
	}
	return nil
}

// newestDefault is the class marked as default by one of the annotations; of several the newest, of these the first by name.
func newestDefault[T kind.Object](classes []T, annotations ...string) *T {
	var found *T
	for i := range classes {
		c := classes[i]
		marked := false
		for _, a := range annotations {
			marked = marked || c.GetAnnotations()[a] == "true"
		}
		if marked && (found == nil || newer(c, *found)) {
			found = &classes[i]
		}
	}
	return found
}

func newer(a, b kind.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if at.Equal(&bt) {
		return a.GetName() < b.GetName()
	}
	return bt.Before(&at)
}
