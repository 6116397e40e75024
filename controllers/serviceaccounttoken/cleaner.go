package serviceaccounttoken

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/loop"
)

// Names of the tracking of tokens in Secrets (KEP-2799). The ConfigMap, in kube-system, says since which day their use is noted.
const (
	TrackingConfigMap = "kube-apiserver-legacy-service-account-token-tracking"
	TrackingSince     = "since"

	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// unusedFor is how long a token goes unused before it is marked invalid, and how long one that was marked is kept (Kubernetes:
// --legacy-service-account-token-clean-up-period).
const unusedFor = 365 * 24 * time.Hour

// CleanerDescriptor declares the loop that clears away tokens which nobody made on purpose: those that Kubernetes before 1.24 gave to every account,
// and that a cluster may have brought along. It marks one that was not used for a year, and deletes it a year later. It looks once a day.
func CleanerDescriptor() loop.Descriptor {
	return loop.Descriptor{
		Name: "legacy-serviceaccount-token-cleaner",
		Reads: []loop.Access{{GroupResource: corev1.Resource("secrets")}, {GroupResource: corev1.Resource("serviceaccounts")}, {GroupResource: corev1.Resource("pods")},
			{GroupResource: corev1.Resource("configmaps")}},
		Writes: []loop.Access{{GroupResource: corev1.Resource("secrets"), Verbs: []string{"update", "delete"}}},
		Start:  func(in loop.Inputs) (loop.Reconcile, error) { return startCleaner(in), nil },
	}
}

func startCleaner(in loop.Inputs) loop.Reconcile {
	c := &cleaner{in: in,
		secrets:  client.CacheOf[*corev1.Secret](in.Caches, client.CacheOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)}),
		accounts: client.CacheOf[*corev1.ServiceAccount](in.Caches, client.CacheOptions{}),
		api:      client.Of[*corev1.Secret](in.Transport),
	}
	in.Enqueue(loop.Key{Name: TrackingConfigMap})
	return func(ctx context.Context, _ loop.Key) (loop.Result, error) {
		return loop.Result{After: 24 * time.Hour}, c.pass(ctx)
	}
}

type cleaner struct {
	in       loop.Inputs
	secrets  client.Cache[*corev1.Secret]
	accounts client.Cache[*corev1.ServiceAccount]
	api      client.API[*corev1.Secret]
}

func (c *cleaner) pass(ctx context.Context) error {
	all := c.secrets.List("")
	if len(all) == 0 {
		return nil
	}
	tracking, err := client.Of[*corev1.ConfigMap](c.in.Transport).Get(ctx, metav1.NamespaceSystem, TrackingConfigMap)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	since, err := time.Parse(time.DateOnly, tracking.Data[TrackingSince])
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", TrackingConfigMap, err)
	}
	now := c.in.Clock.Now().UTC()
	if now.Before(since.AddDate(0, 0, 1).Add(unusedFor)) {
		return nil
	}
	for _, s := range all {
		if err := c.clean(ctx, s, now); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (c *cleaner) clean(ctx context.Context, s *corev1.Secret, now time.Time) error {
	account, _ := c.accounts.Get(s.Namespace, s.Annotations[corev1.ServiceAccountNameKey])
	do := judge(s, account, now)
	if do == leave {
		return nil
	}
	if used, err := c.mounted(ctx, s); err != nil || used {
		return err
	}
	if do == remove {
		return c.api.Delete(ctx, s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &s.ResourceVersion}})
	}
	s = s.DeepCopy()
	metav1.SetMetaDataLabel(&s.ObjectMeta, invalidSinceLabel, now.Format(time.DateOnly))
	_, err := c.api.Update(ctx, s)
	return err
}

// action is what becomes of a Secret.
type action int

const (
	leave action = iota
	mark
	remove
)

// judge decides for one Secret. account is the one that it names, if it is there.
func judge(s *corev1.Secret, account *corev1.ServiceAccount, now time.Time) action {
	before := now.Add(-unusedFor)
	if s.Type != corev1.SecretTypeServiceAccountToken || s.DeletionTimestamp != nil || !s.CreationTimestamp.Time.Before(before) {
		return leave
	}
	if last, ok := s.Labels[lastUsedLabel]; ok {
		if _, err := time.Parse(time.DateOnly, last); err != nil || last >= before.Format(time.DateOnly) {
			return leave
		}
	}
	if uid := types.UID(s.Annotations[corev1.ServiceAccountUIDKey]); account == nil || uid != "" && uid != account.UID {
		return leave
	}
	given := func(r corev1.ObjectReference) bool { return r.Name == s.Name }
	if !slices.ContainsFunc(account.Secrets, given) {
		return leave // somebody made it on purpose
	}
	marked := s.Labels[invalidSinceLabel]
	if _, err := time.Parse(time.DateOnly, marked); err != nil {
		return mark
	}
	if marked >= before.Format(time.DateOnly) {
		return leave
	}
	return remove
}

// mounted tells whether a pod of the namespace may need a Secret: whether its name stands anywhere in the pod's spec.
func (c *cleaner) mounted(ctx context.Context, s *corev1.Secret) (bool, error) {
	pods, err := client.Of[*corev1.Pod](c.in.Transport).List(ctx, s.Namespace, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	name, err := json.Marshal(s.Name)
	if err != nil {
		return false, err
	}
	for _, p := range pods {
		spec, err := json.Marshal(p.Spec)
		if err != nil {
			return false, err
		}
		if bytes.Contains(spec, name) {
			return true, nil
		}
	}
	return false, nil
}
