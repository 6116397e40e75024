// Package serviceaccounttoken fills Secrets of type kubernetes.io/service-account-token: whoever makes one, with the annotation
// kubernetes.io/service-account.name, gets in it a token of that account which lives as long as the Secret. (Kubernetes: serviceaccount-token.)
//
// A Secret whose account is not there, or is another of the same name, is deleted, since its token is worthless. What [Plan] decides is pure. The
// loop never makes such a Secret by itself; pods have tokens of their own.
package serviceaccounttoken

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// Config of the loop.
type Config struct {
	// CA is the PEM of the authority by which holders of tokens know the API server.
	CA []byte
	// Sign makes the token of an account for a Secret.
	Sign func(namespace, account, accountUID, secret string) (string, error)
}

// Descriptor declares the loop. Its keys are Secrets.
func Descriptor(c Config) loop.Descriptor {
	return loop.Descriptor{
		Name:   "serviceaccount-token",
		Reads:  []loop.Access{{GroupResource: corev1.Resource("secrets")}, {GroupResource: corev1.Resource("serviceaccounts")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("secrets"), Verbs: []string{"update", "delete"}}},
		Start: func(in loop.Inputs) (loop.Reconcile, error) {
			if c.Sign == nil {
				return nil, errors.New("nobody signs tokens")
			}
			return start(in, c), nil
		},
	}
}

func start(in loop.Inputs, c Config) loop.Reconcile {
	secrets := client.CacheOf[*corev1.Secret](in.Caches, client.CacheOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)})
	accounts := client.CacheOf[*corev1.ServiceAccount](in.Caches, client.CacheOptions{})
	api, people := client.Of[*corev1.Secret](in.Transport), client.Of[*corev1.ServiceAccount](in.Transport)
	secrets.OnChange(func(_, s *corev1.Secret) {
		if s != nil {
			in.Enqueue(loop.Key{Namespace: s.Namespace, Name: s.Name})
		}
	})
	accounts.OnChange(func(old, account *corev1.ServiceAccount) {
		if old != nil && account != nil && old.UID == account.UID {
			return
		}
		a := client.Newest(old, account)
		for _, s := range secrets.List(a.Namespace) {
			if s.Annotations[corev1.ServiceAccountNameKey] == a.Name {
				in.Enqueue(loop.Key{Namespace: s.Namespace, Name: s.Name})
			}
		}
	})
	return func(ctx context.Context, key loop.Key) (loop.Result, error) {
		have, ok := secrets.Get(key.Namespace, key.Name)
		if !ok {
			return loop.Result{}, nil
		}
		// The account may be younger than what the cache knows, and a wrong answer deletes: it is read itself.
		account, err := people.Get(ctx, have.Namespace, have.Annotations[corev1.ServiceAccountNameKey])
		if apierrors.IsNotFound(err) || have.Annotations[corev1.ServiceAccountNameKey] == "" {
			account, err = nil, nil
		}
		if err != nil {
			return loop.Result{}, err
		}
		want, remove, err := Plan(have, account, c)
		switch {
		case err != nil:
		case remove:
			err = api.Delete(ctx, have.Namespace, have.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.UID))})
		case want != nil:
			_, err = api.Update(ctx, want)
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // another change is on its way here
			err = nil
		}
		return loop.Result{}, err
	}
}

// Plan says what is to become of a Secret, whose account is nil if it is not there: another content, its removal, or nothing.
func Plan(have *corev1.Secret, account *corev1.ServiceAccount, c Config) (want *corev1.Secret, remove bool, err error) {
	name, uid := have.Annotations[corev1.ServiceAccountNameKey], types.UID(have.Annotations[corev1.ServiceAccountUIDKey])
	if have.Type != corev1.SecretTypeServiceAccountToken || have.DeletionTimestamp != nil || name == "" {
		return nil, false, nil
	}
	if account == nil || account.Name != name || uid != "" && uid != account.UID {
		return nil, true, nil
	}
	data := have.Data
	if len(data[corev1.ServiceAccountTokenKey]) > 0 && len(data[corev1.ServiceAccountNamespaceKey]) > 0 && bytes.Equal(data[corev1.ServiceAccountRootCAKey], c.CA) && uid != "" {
		return nil, false, nil
	}
	want = have.DeepCopy()
	if want.Data == nil {
		want.Data = map[string][]byte{}
	}
	want.Data[corev1.ServiceAccountRootCAKey] = c.CA
	if len(want.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		want.Data[corev1.ServiceAccountNamespaceKey] = []byte(have.Namespace)
	}
	if len(want.Data[corev1.ServiceAccountTokenKey]) == 0 {
		token, err := c.Sign(have.Namespace, account.Name, string(account.UID), have.Name)
		if err != nil {
			return nil, false, fmt.Errorf("token of service account %s: %w", account.Name, err)
		}
		want.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, corev1.ServiceAccountUIDKey, string(account.UID))
	return want, false, nil
}
