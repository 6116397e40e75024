package admission

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/access"
)

// serviceAccount gives every new pod a service account: it checks that the account exists, mounts a token of it into the containers, and
// takes over its image pull secrets. Where the account asks for it, the pod may use no secret that the account does not name.
type serviceAccount struct{ Config }

const (
	defaultAccount   = "default"
	tokenVolume      = "kube-api-access-"
	tokenPath        = "/var/run/secrets/kubernetes.io/serviceaccount"
	enforceMountable = "kubernetes.io/enforce-mountable-secrets"
	// tokenSeconds is how long a mounted token lives before the node asks for another: an hour and a few seconds, the number that
	// Kubernetes uses to tell such tokens from those that somebody asked for.
	tokenSeconds = 3607
)

func (serviceAccount) Name() string { return "ServiceAccount" }

func (s serviceAccount) Mutate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || !on(r, "", "pods", admissionv1.Create) {
		return nil
	}
	if isMirror(pod) {
		return validateMirror(r, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = pod.Spec.DeprecatedServiceAccount
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	account, err := s.find(ctx, env, r.Ref.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return lookupFailed(r, pod.Spec.ServiceAccountName, err)
	}
	if automount(account, pod) {
		mountToken(pod, volumeSuffix(account))
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return nil
}

func (s serviceAccount) Validate(ctx context.Context, env kind.Env, r *kind.AdmissionRequest) error {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	ephemeral := onSub(r, "", "pods", "ephemeralcontainers", admissionv1.Update)
	if !ephemeral && !on(r, "", "pods", admissionv1.Create) {
		return nil
	}
	if isMirror(pod) && !ephemeral {
		return validateMirror(r, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		return forbid(r, "no service account specified for pod %s/%s", r.Ref.Namespace, pod.Name)
	}
	account, err := get[*corev1.ServiceAccount](ctx, env, "", "serviceaccounts", r.Ref.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return lookupFailed(r, pod.Spec.ServiceAccountName, err)
	}
	if enforce, _ := strconv.ParseBool(account.Annotations[enforceMountable]); !enforce {
		return nil
	}
	if why := notMountable(account, pod, ephemeral); why != "" {
		return forbid(r, "%s is not allowed because service account %s does not reference it", why, account.Name)
	}
	return nil
}

func lookupFailed(r *kind.AdmissionRequest, name string, err error) error {
	if apierrors.IsNotFound(err) { // clients know it by these words
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, name)
	}
	return forbid(r, "error looking up service account %s/%s: %v", r.Ref.Namespace, name, err)
}

// find waits a little for the account "default", which a loop makes soon after the namespace.
func (s serviceAccount) find(ctx context.Context, env kind.Env, namespace, name string) (*corev1.ServiceAccount, error) {
	wait := 2 * time.Millisecond
	for deadline := s.Clock.Now().Add(1500 * time.Millisecond); ; wait = min(2*wait, 100*time.Millisecond) {
		account, err := get[*corev1.ServiceAccount](ctx, env, "", "serviceaccounts", namespace, name)
		if err == nil || !apierrors.IsNotFound(err) || name != defaultAccount || s.Clock.Now().After(deadline) {
			return account, err
		}
		timer := s.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		case <-timer.C():
		}
	}
}

func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// validateMirror keeps a pod that a node made of itself away from what the API would give it.
func validateMirror(r *kind.AdmissionRequest, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return forbid(r, "a mirror pod may not reference service accounts")
	}
	if len(access.PodReferences(pod).Secrets) > 0 {
		return forbid(r, "a mirror pod may not reference secrets")
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			return forbid(r, "a mirror pod may not use ServiceAccountToken volume projections")
		}
	}
	return nil
}

// automount: the pod's wish goes before the account's, and the account's before the default, which is yes.
func automount(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	for _, wish := range []*bool{pod.Spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken} {
		if wish != nil {
			return *wish
		}
	}
	return true
}

// mountToken mounts the token volume into every container that has nothing at its path, and adds the volume if the pod has none.
func mountToken(pod *corev1.Pod, suffix string) {
	name := ""
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, tokenVolume) {
			name = v.Name
			break
		}
	}
	exists := name != ""
	if !exists {
		name = tokenVolume + suffix
	}
	needed := false
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath }) {
				continue
			}
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenPath})
			needed = true
		}
	}
	if needed && !exists {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSource()}})
	}
}

// volumeSuffix ends the name of the volume with an account's token, in the form of a generated name. It is one for all pods of an account, so that pods
// of one template say the same and share memory; a name need not differ from those in other pods.
func volumeSuffix(account *corev1.ServiceAccount) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789" // as in Kubernetes' generated names: they spell no words
	h := fnv.New64a()
	_, _ = h.Write([]byte(account.UID))
	sum := h.Sum64()
	var out [5]byte
	for i := range out {
		out[i] = letters[sum%uint64(len(letters))]
		sum /= uint64(len(letters))
	}
	return string(out[:])
}

// tokenSource is what a client in a pod expects: the token, the cluster's CA, and the pod's namespace.
func tokenSource() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](tokenSeconds)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}

// notMountable says which secret a pod uses without its account naming it.
func notMountable(account *corev1.ServiceAccount, pod *corev1.Pod, ephemeral bool) string {
	named := func(secret string) bool {
		return slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == secret })
	}
	if ephemeral {
		for i := range pod.Spec.EphemeralContainers {
			c := &pod.Spec.EphemeralContainers[i]
			if why := unnamedSecret("ephemeral container "+c.Name, c.Env, c.EnvFrom, named); why != "" {
				return why
			}
		}
		return ""
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !named(v.Secret.SecretName) {
			return fmt.Sprintf("volume with secret.secretName=%q", v.Secret.SecretName)
		}
	}
	for _, group := range []struct {
		what       string
		containers []corev1.Container
	}{{"init container ", pod.Spec.InitContainers}, {"container ", pod.Spec.Containers}} {
		for i := range group.containers {
			c := &group.containers[i]
			if why := unnamedSecret(group.what+c.Name, c.Env, c.EnvFrom, named); why != "" {
				return why
			}
		}
	}
	for i, ref := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, ref) {
			return fmt.Sprintf("imagePullSecrets[%d].name=%q", i, ref.Name)
		}
	}
	return ""
}

func unnamedSecret(where string, env []corev1.EnvVar, from []corev1.EnvFromSource, named func(string) bool) string {
	for _, e := range env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !named(e.ValueFrom.SecretKeyRef.Name) {
			return fmt.Sprintf("%s with envVar %s referencing secret.secretName=%q", where, e.Name, e.ValueFrom.SecretKeyRef.Name)
		}
	}
	for _, f := range from {
		if f.SecretRef != nil && !named(f.SecretRef.Name) {
			return fmt.Sprintf("%s with envFrom referencing secret.secretName=%q", where, f.SecretRef.Name)
		}
	}
	return ""
}
