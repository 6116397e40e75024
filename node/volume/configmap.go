package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func (j *job) configMap(name string, s *corev1.ConfigMapVolumeSource) (mounted, error) {
	p := payload{}
	if err := j.addConfigMap(p, s.Name, s.Items, s.DefaultMode, s.Optional); err != nil {
		return mounted{}, err
	}
	dir := j.dir("configmap", name)
	return mounted{path: dir, readOnly: true}, j.write(dir, p)
}

func (j *job) addConfigMap(p payload, name string, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	cm, err := j.cfg.Objects.ConfigMap(j.ctx, j.pod.Namespace, name)
	if err != nil {
		return missingIsEmpty(err, optional)
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	return p.items(data, items, mode, optional, "configmap references non-existent config key: %s")
}

// missingIsEmpty lets an optional object be missing.
func missingIsEmpty(err error, optional *bool) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (j *job) secret(name string, s *corev1.SecretVolumeSource) (mounted, error) {
	p := payload{}
	if err := j.addSecret(p, s.SecretName, s.Items, s.DefaultMode, s.Optional); err != nil {
		return mounted{}, err
	}
	dir, err := j.secretDir("secret", name)
	if err != nil {
		return mounted{}, err
	}
	return mounted{path: dir, readOnly: true}, j.write(dir, p)
}

func (j *job) addSecret(p payload, name string, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	secret, err := j.cfg.Objects.Secret(j.ctx, j.pod.Namespace, name)
	if err != nil {
		return missingIsEmpty(err, optional)
	}
	return p.items(secret.Data, items, mode, optional, "references non-existent secret key: %s")
}

func (j *job) image(s *corev1.ImageVolumeSource) (mounted, error) {
	if j.cfg.Images == nil {
		return mounted{}, fmt.Errorf("this node can't pull images for volumes")
	}
	policy := s.PullPolicy
	if policy == "" {
		policy = corev1.PullIfNotPresent
	}
	ref, err := j.cfg.Images.Ensure(j.ctx, j.pod, s.Reference, policy)
	if err != nil {
		return mounted{}, err
	}
	return mounted{readOnly: true, image: imageSpec(ref, s.Reference)}, nil
}
