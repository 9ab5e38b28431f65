import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.Base64;
import java.util.Collections;

/** Writes every entry of a key store as PEM: NAME.pem its key and chain, NAME-ca.pem the chain's last certificate. */
public class Certificates {
    public static void main(String[] args) throws Exception {
        char[] password = args[1].toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (FileInputStream in = new FileInputStream(args[0])) {
            store.load(in, password);
        }
        Path folder = Path.of(args[2]);
        for (String name : Collections.list(store.aliases())) {
            Certificate[] chain = store.getCertificateChain(name);
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(bytes);
            block(out, "PRIVATE KEY", store.getKey(name, password).getEncoded());
            for (Certificate one : chain) {
                block(out, "CERTIFICATE", one.getEncoded());
            }
            Files.write(folder.resolve(name + ".pem"), bytes.toByteArray());
            bytes.reset();
            block(out, "CERTIFICATE", chain[chain.length - 1].getEncoded());
            Files.write(folder.resolve(name + "-ca.pem"), bytes.toByteArray());
        }
    }

    private static void block(PrintStream out, String kind, byte[] content) {
        out.println("-----BEGIN " + kind + "-----");
        out.println(Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content));
        out.println("-----END " + kind + "-----");
        out.flush();
    }
}
