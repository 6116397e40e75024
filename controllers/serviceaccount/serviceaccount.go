// Package serviceaccount keeps a ServiceAccount named "default" in every namespace that is not being deleted: pods that name none run as it.
package serviceaccount

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// Default is the account's name.
const Default = "default"

// Descriptor declares the loop. Its keys are namespaces.
func Descriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:   "service-account",
		Reads:  []loop.Access{{GroupResource: corev1.Resource("namespaces")}, {GroupResource: corev1.Resource("serviceaccounts")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("serviceaccounts"), Verbs: []string{"create"}}},
		Start:  start,
	}
}

func start(in loop.Inputs) (loop.Reconcile, error) {
	namespaces := client.CacheOf[*corev1.Namespace](in.Caches, client.CacheOptions{})
	accounts := client.CacheOf[*corev1.ServiceAccount](in.Caches, client.CacheOptions{})
	api := client.Of[*corev1.ServiceAccount](in.Transport)
	namespaces.OnChange(func(_, new *corev1.Namespace) {
		if new != nil {
			in.Enqueue(loop.Key{Name: new.Name})
		}
	})
	accounts.OnChange(func(old, new *corev1.ServiceAccount) {
		if new == nil && old.Name == Default {
			in.Enqueue(loop.Key{Name: old.Namespace})
		}
	})
	return func(ctx context.Context, key loop.Key) (loop.Result, error) {
		ns, ok := namespaces.Get("", key.Name)
		if _, there := accounts.Get(key.Name, Default); there || !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
			return loop.Result{}, nil
		}
		_, err := api.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Name, Name: Default}})
		if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return loop.Result{}, nil
		}
		return loop.Result{}, fmt.Errorf("create the default ServiceAccount: %w", err)
	}, nil
}
