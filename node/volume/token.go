package volume

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/resource"
)

// tokens asks the API for service account tokens and keeps each until it should be renewed: when 80% of its life is over, or after a day.
// Source: Kubernetes documentation, "Service account token volume projection".
type tokens struct {
	transport client.Transport
	clock     clock.Clock
	mu        sync.Mutex
	kept      map[tokenKey]token
}

type tokenKey struct {
	uid      types.UID
	account  string
	audience string
	seconds  int64
}

type token struct {
	value string
	renew time.Time
}

func newTokens(t client.Transport, c clock.Clock) *tokens {
	return &tokens{transport: t, clock: c, kept: map[tokenKey]token{}}
}

func (t *tokens) get(ctx context.Context, pod *corev1.Pod, s *corev1.ServiceAccountTokenProjection) (string, time.Time, error) {
	key := tokenKey{uid: pod.UID, account: pod.Spec.ServiceAccountName, audience: s.Audience, seconds: 3600}
	if s.ExpirationSeconds != nil {
		key.seconds = *s.ExpirationSeconds
	}
	now := t.clock.Now()
	t.mu.Lock()
	got, ok := t.kept[key]
	t.mu.Unlock()
	if ok && now.Before(got.renew) {
		return got.value, got.renew, nil
	}
	status, err := t.request(ctx, pod, key)
	if err != nil {
		return "", time.Time{}, err
	}
	life := status.ExpirationTimestamp.Sub(now)
	got = token{value: status.Token, renew: now.Add(min(life*8/10, 24*time.Hour) - spread(pod.UID))}
	if !got.renew.After(now) {
		return "", time.Time{}, fmt.Errorf("the API gave a token for service account %s/%s that lasts only %s", pod.Namespace, key.account, life)
	}
	t.mu.Lock()
	t.kept[key] = got
	t.mu.Unlock()
	return got.value, got.renew, nil
}

func (t *tokens) request(ctx context.Context, pod *corev1.Pod, key tokenKey) (*authv1.TokenRequestStatus, error) {
	if t.transport == nil {
		return nil, fmt.Errorf("this node has no API to ask for tokens")
	}
	req := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: &key.seconds,
		BoundObjectRef: &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}}
	if key.audience != "" {
		req.Spec.Audiences = []string{key.audience}
	}
	ref := resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("serviceaccounts"), Namespace: pod.Namespace,
		Name: key.account, Subresource: "token"}
	out, err := t.transport.Create(ctx, ref, req, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	tr, ok := out.(*authv1.TokenRequest)
	if !ok || tr.Status.Token == "" {
		return nil, fmt.Errorf("the API answered a %T without a token", out)
	}
	return &tr.Status, nil
}

// spread is up to ten seconds, different from pod to pod, so that pods made together don't renew together.
func spread(uid types.UID) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return time.Duration(h.Sum32()%10_000) * time.Millisecond
}

func (t *tokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.kept {
		if k.uid == uid {
			delete(t.kept, k)
		}
	}
}
