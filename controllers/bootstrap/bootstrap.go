// Package bootstrap looks after bootstrap tokens, the Secrets in kube-system by which machines join (Kubernetes: token-cleaner, bootstrap-signer).
//
// [CleanerDescriptor] deletes each token when it expires. [SignerDescriptor] keeps in the ConfigMap kube-public/cluster-info a signature of its
// kubeconfig by every token that is for signing, so that a machine which holds one can tell that the kubeconfig comes from its cluster; signatures of tokens
// that are gone, expired, or for something else are removed.
//
// Neither makes tokens or the ConfigMap. No part of a token is in a log line or an event.
// Source: Kubernetes documentation, "Authenticating with Bootstrap Tokens".
package bootstrap

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

const (
	// ClusterInfo is the ConfigMap in kube-public that is signed, Kubeconfig its key with what is signed.
	ClusterInfo = "cluster-info"
	Kubeconfig  = "kubeconfig"

	signaturePrefix = "jws-kubeconfig-"
	secretPrefix    = "bootstrap-token-"
)

// tokens are all Secrets that may be bootstrap tokens.
var tokens = client.CacheOptions{Namespace: metav1.NamespaceSystem, FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)}

// CleanerDescriptor declares the loop that deletes expired tokens. Its keys are Secrets.
func CleanerDescriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:   "token-cleaner",
		Reads:  []loop.Access{{GroupResource: corev1.Resource("secrets")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("secrets"), Verbs: []string{"delete"}}},
		Start:  func(in loop.Inputs) (loop.Reconcile, error) { return startCleaner(in), nil },
	}
}

func startCleaner(in loop.Inputs) loop.Reconcile {
	secrets := client.CacheOf[*corev1.Secret](in.Caches, tokens)
	api := client.Of[*corev1.Secret](in.Transport)
	secrets.OnChange(func(_, s *corev1.Secret) {
		if s != nil {
			in.Enqueue(loop.Key{Namespace: s.Namespace, Name: s.Name})
		}
	})
	return func(ctx context.Context, key loop.Key) (loop.Result, error) {
		s, ok := secrets.Get(key.Namespace, key.Name)
		if !ok || s.Type != corev1.SecretTypeBootstrapToken {
			return loop.Result{}, nil
		}
		left, expires := life(s, in.Clock.Now())
		if !expires || left > 0 {
			return loop.Result{After: left}, nil
		}
		err := api.Delete(ctx, s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return loop.Result{}, nil
		}
		return loop.Result{}, fmt.Errorf("delete an expired token: %w", err)
	}
}

// life is for how long a token is good yet; false if it does not expire. One whose expiration cannot be read is good no more.
func life(s *corev1.Secret, now time.Time) (left time.Duration, expires bool) {
	text := string(s.Data["expiration"])
	if text == "" {
		return 0, false
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, true
	}
	return at.Sub(now), true
}

// SignerDescriptor declares the loop that signs. Its only key is the ConfigMap.
func SignerDescriptor() loop.Descriptor {
	return loop.Descriptor{
		Name:   "bootstrap-signer",
		Reads:  []loop.Access{{GroupResource: corev1.Resource("secrets")}, {GroupResource: corev1.Resource("configmaps")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("configmaps"), Verbs: []string{"update"}}},
		Start:  func(in loop.Inputs) (loop.Reconcile, error) { return startSigner(in), nil },
	}
}

func startSigner(in loop.Inputs) loop.Reconcile {
	secrets := client.CacheOf[*corev1.Secret](in.Caches, tokens)
	infos := client.CacheOf[*corev1.ConfigMap](in.Caches, client.CacheOptions{Namespace: metav1.NamespacePublic, FieldSelector: "metadata.name=" + ClusterInfo})
	api := client.Of[*corev1.ConfigMap](in.Transport)
	key := loop.Key{Namespace: metav1.NamespacePublic, Name: ClusterInfo}
	secrets.OnChange(func(_, _ *corev1.Secret) { in.Enqueue(key) })
	infos.OnChange(func(_, _ *corev1.ConfigMap) { in.Enqueue(key) })
	return func(ctx context.Context, _ loop.Key) (loop.Result, error) {
		have, ok := infos.Get(key.Namespace, key.Name)
		if !ok || have.Data[Kubeconfig] == "" {
			return loop.Result{}, nil
		}
		data, next := signed(have.Data, secrets.List(metav1.NamespaceSystem), in.Clock.Now())
		result := loop.Result{After: next}
		if maps.Equal(data, have.Data) {
			return result, nil
		}
		have = have.DeepCopy()
		have.Data = data
		_, err := api.Update(ctx, have)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the change that caused it wakes this loop again
			err = nil
		}
		return result, err
	}
}

// signed is the data with the signatures that it should have, and after what time the next token expires; 0 if none does.
func signed(data map[string]string, secrets []*corev1.Secret, now time.Time) (map[string]string, time.Duration) {
	out := maps.Clone(data)
	maps.DeleteFunc(out, func(key, _ string) bool { return strings.HasPrefix(key, signaturePrefix) })
	next := time.Duration(0)
	for _, s := range secrets {
		id, secret, ok := signing(s)
		if !ok {
			continue
		}
		if left, expires := life(s, now); expires {
			if left <= 0 {
				continue
			}
			if next == 0 || left < next {
				next = left
			}
		}
		out[signaturePrefix+id] = sign(data[Kubeconfig], id, secret)
	}
	return out, next
}

// signing returns the parts of a token that is for signing.
func signing(s *corev1.Secret) (id, secret string, ok bool) {
	id, secret = string(s.Data["token-id"]), string(s.Data["token-secret"])
	ok = s.Type == corev1.SecretTypeBootstrapToken && s.DeletionTimestamp == nil && id != "" && secret != "" && s.Name == secretPrefix+id &&
		string(s.Data["usage-bootstrap-signing"]) == "true"
	return id, secret, ok
}
