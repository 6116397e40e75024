// Package rootca keeps the ConfigMap kube-root-ca.crt in every namespace that is not being deleted. It holds the certificate authority by which pods know
// the API server, and is put right when it is changed or deleted.
package rootca

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

const (
	// ConfigMap is the name that projected service account volumes refer to.
	ConfigMap = "kube-root-ca.crt"
	// Key holds the certificates as PEM.
	Key            = "ca.crt"
	descriptionKey = "kubernetes.io/description"
	description    = "The certificate authority that signs the API server's certificate for its addresses inside the cluster. Nothing else should be verified with it."
)

// Descriptor declares the loop; pem is the certificate authority's certificates. Its keys are namespaces.
func Descriptor(pem []byte) loop.Descriptor {
	return loop.Descriptor{
		Name:   "root-ca-cert-publisher",
		Reads:  []loop.Access{{GroupResource: corev1.Resource("namespaces")}, {GroupResource: corev1.Resource("configmaps")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("configmaps"), Verbs: []string{"create", "update"}}},
		Start: func(in loop.Inputs) (loop.Reconcile, error) {
			if len(pem) == 0 {
				return nil, errors.New("no certificate authority was given")
			}
			return start(in, string(pem)), nil
		},
	}
}

func start(in loop.Inputs, pem string) loop.Reconcile {
	namespaces := client.CacheOf[*corev1.Namespace](in.Caches, client.CacheOptions{})
	maps := client.CacheOf[*corev1.ConfigMap](in.Caches, client.CacheOptions{FieldSelector: "metadata.name=" + ConfigMap})
	api := client.Of[*corev1.ConfigMap](in.Transport)
	namespaces.OnChange(func(_, new *corev1.Namespace) {
		if new != nil {
			in.Enqueue(loop.Key{Name: new.Name})
		}
	})
	maps.OnChange(func(old, new *corev1.ConfigMap) { in.Enqueue(loop.Key{Name: client.Newest(old, new).Namespace}) })
	return func(ctx context.Context, key loop.Key) (loop.Result, error) {
		ns, ok := namespaces.Get("", key.Name)
		if !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
			return loop.Result{}, nil
		}
		var err error
		if have, ok := maps.Get(key.Name, ConfigMap); ok {
			if want, differs := corrected(have, pem); differs {
				_, err = api.Update(ctx, want)
			}
		} else {
			_, err = api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Name, Name: ConfigMap,
				Annotations: map[string]string{descriptionKey: description}}, Data: map[string]string{Key: pem}})
		}
		if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return loop.Result{}, nil
		}
		return loop.Result{}, fmt.Errorf("publish %s: %w", ConfigMap, err)
	}
}

// corrected is have as it should be, and whether that is different.
func corrected(have *corev1.ConfigMap, pem string) (*corev1.ConfigMap, bool) {
	data := map[string]string{Key: pem}
	if maps.Equal(have.Data, data) && len(have.BinaryData) == 0 && have.Annotations[descriptionKey] != "" {
		return have, false
	}
	have = have.DeepCopy()
	have.Data, have.BinaryData = data, nil
	if have.Annotations[descriptionKey] == "" {
		metav1.SetMetaDataAnnotation(&have.ObjectMeta, descriptionKey, description)
	}
	return have, true
}
