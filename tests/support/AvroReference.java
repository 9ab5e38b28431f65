import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.io.JsonEncoder;

/**
 * What Apache Avro makes of values. Each line of the file named has a writer's schema, a reader's and
 * a value in Avro's JSON encoding, with tabs between them. Prints a line for each: the value's bytes
 * in hex, a tab, and the value as the reader has it, in Avro's JSON encoding, or "!" if it has none.
 */
class AvroReference {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split("\t");
            Schema writer = new Schema.Parser().parse(parts[0]);
            Schema reader = new Schema.Parser().parse(parts[1]);
            Object value = new GenericDatumReader<>(writer)
                    .read(null, DecoderFactory.get().jsonDecoder(writer, parts[2]));
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
            new GenericDatumWriter<>(writer).write(value, encoder);
            encoder.flush();
            String hex = HexFormat.of().formatHex(bytes.toByteArray());
            System.out.println(hex + "\t" + read(writer, reader, bytes.toByteArray()));
        }
    }

    private static String read(Schema writer, Schema reader, byte[] bytes) throws Exception {
        Object value;
        try {
            value = new GenericDatumReader<>(writer, reader)
                    .read(null, DecoderFactory.get().binaryDecoder(bytes, null));
        } catch (RuntimeException error) {
            return "!";
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        JsonEncoder encoder = EncoderFactory.get().jsonEncoder(reader, out);
        new GenericDatumWriter<>(reader).write(value, encoder);
        encoder.flush();
        return out.toString(StandardCharsets.UTF_8);
    }
}
