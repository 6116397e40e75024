package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/yare-project/yare/internal/jointoken"
	"github.com/yare-project/yare/internal/pki"
	"github.com/yare-project/yare/server"
)

// tokenSecret is the prefix of a bootstrap token's Secret.
const tokenSecret = "bootstrap-token-"

func tokenCommand() *cobra.Command {
	f := &flags{}
	root := &cobra.Command{Use: "token", Short: "Join tokens for nodes"}
	f.addFolder(root.PersistentFlags())
	var life time.Duration
	create := &cobra.Command{
		Use: "create", Short: "Make a join token and print it", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			text, err := f.createToken(command.Context(), life)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), text)
			return err
		},
	}
	create.Flags().DurationVar(&life, "ttl", 24*time.Hour, "how long the token is good")
	list := &cobra.Command{
		Use: "list", Short: "List join tokens (without their secrets)", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return f.listTokens(command) },
	}
	remove := &cobra.Command{
		Use: "delete ID", Short: "Make a join token worthless", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			api, _, err := f.admin()
			if err != nil {
				return err
			}
			err = api.CoreV1().Secrets(metav1.NamespaceSystem).Delete(command.Context(), tokenSecret+args[0], metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("there is no token %q: see `yare token list`", args[0])
			}
			return err
		},
	}
	root.AddCommand(create, list, remove)
	return root
}

// admin is a client of the cluster that runs from the data folder, and its authority's pin.
func (f *flags) admin() (kubernetes.Interface, string, error) {
	path, err := server.AdminFile(f.config.DataDir)
	if err != nil {
		return nil, "", err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, "", fmt.Errorf("cannot read %s: %w", path, err)
	}
	authorities, err := pki.ParseCertificates(config.CAData)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	api, err := kubernetes.NewForConfig(config)
	return api, pki.Pin(authorities[0]), err
}

func (f *flags) createToken(ctx context.Context, life time.Duration) (string, error) {
	if life <= 0 {
		return "", fmt.Errorf("--ttl %s: a token must be good for a while", life)
	}
	api, pin, err := f.admin()
	if err != nil {
		return "", err
	}
	token, err := jointoken.New(pin)
	if err != nil {
		return "", err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tokenSecret + token.ID},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": token.ID, "token-secret": token.Secret, "expiration": time.Now().Add(life).UTC().Format(time.RFC3339),
			"usage-bootstrap-authentication": "true", "auth-extra-groups": server.Joiners, "description": "made by yare token create",
		},
	}
	_, err = api.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	return token.String(), err
}

func (f *flags) listTokens(command *cobra.Command) error {
	api, _, err := f.admin()
	if err != nil {
		return err
	}
	secrets, err := api.CoreV1().Secrets(metav1.NamespaceSystem).List(command.Context(), metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(command.OutOrStdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tEXPIRES\tDESCRIPTION")
	for _, s := range secrets.Items {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Data["token-id"], s.Data["expiration"], s.Data["description"])
	}
	return w.Flush()
}
